/* SPDX-License-Identifier: MIT */
/* The parser of request.h. A head is cut into lines, a line into its parts; a part is a piece of the bytes that were given. */
#include "request.h"
#include <string.h>

/* ---- characters and pieces -------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool is_token(char c)
{
    return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z') || (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_visible(char c)
{
    return c > ' ' && c < '\x7f';
}

/* Of a field's value: bytes above 127 are some other alphabet. */
static bool is_text(char c)
{
    return (unsigned char)c >= 0x80 || is_visible(c) || c == ' ' || c == '\t';
}

static bool is_of_host(char c)
{
    return is_token(c) || c == ':' || c == '[' || c == ']';
}

static bool all(struct w_piece text, bool (*is)(char))
{
    for (size_t i = 0; i < text.size; i++)
        if (!is(text.at[i]))
            return false;
    return true;
}

bool w_piece_is(struct w_piece text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.at, word, text.size) == 0;
}

static bool is_in_any_case(struct w_piece text, const char *word)
{
    bool same = text.size == strlen(word);
    for (size_t i = 0; same && i < text.size; i++)
        same = lower(text.at[i]) == lower(word[i]);
    return same;
}

static struct w_piece after(struct w_piece text, size_t n)
{
    return (struct w_piece){text.at + n, text.size - n};
}

static bool begins_in_any_case(struct w_piece text, const char *word)
{
    size_t n = strlen(word);
    return text.size >= n && is_in_any_case((struct w_piece){text.at, n}, word);
}

/* Cuts off what lies before the first c, with the c; all of it if there is none. */
static struct w_piece cut(struct w_piece *text, char c)
{
    const char *end = text->size > 0 ? memchr(text->at, c, text->size) : NULL;
    struct w_piece first = {text->at, end == NULL ? text->size : (size_t)(end - text->at)};
    *text = after(*text, first.size + (end != NULL));
    return first;
}

static struct w_piece trimmed(struct w_piece text)
{
    while (text.size > 0 && (text.at[0] == ' ' || text.at[0] == '\t'))
        text = after(text, 1);
    while (text.size > 0 && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* ---- the first line --------------------------------------------------------------------------------------------- */

static int parse_version(struct w_http *r, struct w_piece version)
{
    if (version.size != 8 || memcmp(version.at, "HTTP/", 5) != 0 || !is_digit(version.at[5]) || version.at[6] != '.' ||
        !is_digit(version.at[7]))
        return 400;
    r->close = version.at[7] == '0'; /* HTTP/1.0 closes; whoever wants more speaks 1.1 */
    return version.at[5] == '1' ? W_HTTP_DONE : 505;
}

static int parse_request_line(struct w_http *r, struct w_piece line)
{
    struct w_piece rest = line, method = cut(&rest, ' '), target = cut(&rest, ' ');
    if (method.size == 0 || !all(method, is_token) || target.size == 0 || target.at[0] != '/' ||
        !all(target, is_visible))
        return 400;
    int result = parse_version(r, rest);
    if (result != W_HTTP_DONE)
        return result;
    r->head = w_piece_is(method, "HEAD");
    r->query = target;
    r->path = cut(&r->query, '?');
    return r->head || w_piece_is(method, "GET") ? W_HTTP_DONE : 405;
}

/* ---- fields ----------------------------------------------------------------------------------------------------- */

/* The port, if there is one, is digits behind the last colon that is not in brackets. */
static int on_host(struct w_http *r, struct w_piece value)
{
    if (r->whole_host.at != NULL || !all(value, is_of_host))
        return 400;
    r->whole_host = r->host = value;
    size_t n = value.size;
    while (n > 0 && is_digit(value.at[n - 1]))
        n--;
    if (n > 0 && value.at[n - 1] == ':')
        r->host.size = n - 1;
    return W_HTTP_DONE;
}

/* One of no bytes is none. */
static int on_content_length(struct w_http *r, struct w_piece value)
{
    (void)r;
    return w_piece_is(value, "0") ? W_HTTP_DONE : value.size > 0 && all(value, is_digit) ? 413 : 400;
}

static int on_transfer_encoding(struct w_http *r, struct w_piece value)
{
    (void)r, (void)value;
    return 413;
}

static int on_connection(struct w_http *r, struct w_piece value)
{
    while (value.size > 0)
        r->close |= is_in_any_case(trimmed(cut(&value, ',')), "close");
    return W_HTTP_DONE;
}

static int on_authorization(struct w_http *r, struct w_piece value)
{
    if (r->bearer.at != NULL)
        return 400;
    if (begins_in_any_case(value, "Bearer "))
        r->bearer = trimmed(after(value, strlen("Bearer ")));
    return W_HTTP_DONE;
}

static int on_origin(struct w_http *r, struct w_piece value)
{
    if (r->origin.at != NULL)
        return 400;
    r->origin = value;
    return W_HTTP_DONE;
}

static int on_fetch_site(struct w_http *r, struct w_piece value)
{
    r->cross_site |= !is_in_any_case(value, "same-origin") && !is_in_any_case(value, "none");
    return W_HTTP_DONE;
}

static int parse_known(struct w_http *r, struct w_piece name, struct w_piece value)
{
    static const struct {
        const char *name;
        int (*parse)(struct w_http *, struct w_piece);
    } known[] = {{"Host", on_host},
                 {"Content-Length", on_content_length},
                 {"Transfer-Encoding", on_transfer_encoding},
                 {"Connection", on_connection},
                 {"Authorization", on_authorization},
                 {"Origin", on_origin},
                 {"Sec-Fetch-Site", on_fetch_site}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (is_in_any_case(name, known[i].name))
            return known[i].parse(r, value);
    return W_HTTP_DONE;
}

/* A name is a token: a folded line and a space before the colon fail here. */
static int parse_field(struct w_http *r, struct w_piece line)
{
    struct w_piece value = line, name = cut(&value, ':');
    if (name.size == 0 || name.size == line.size || !all(name, is_token) || !all(value, is_text))
        return 400;
    return parse_known(r, name, trimmed(value));
}

/* ---- the head --------------------------------------------------------------------------------------------------- */

/* Where the empty line ends, or 0: it is not there yet. */
static size_t head_size(const char *bytes, size_t n)
{
    const char *end = n >= 4 ? memmem(bytes, n, "\r\n\r\n", 4) : NULL;
    return end != NULL ? (size_t)(end - bytes) + 4 : 0;
}

/* The next line without its end; false: it ends in a lone LF. */
static bool next_line(struct w_piece *rest, struct w_piece *line)
{
    *line = cut(rest, '\n');
    if (line->size == 0 || line->at[line->size - 1] != '\r')
        return false;
    line->size--;
    return true;
}

int w_http_parse(struct w_http *r, const char *bytes, size_t n)
{
    *r = (struct w_http){.size = head_size(bytes, n < W_HTTP_MAX ? n : W_HTTP_MAX)};
    if (r->size == 0)
        return n < W_HTTP_MAX ? W_HTTP_MORE : 431;
    struct w_piece rest = {bytes, r->size - 2}, line;
    if (!next_line(&rest, &line))
        return 400;
    int result = parse_request_line(r, line);
    while (result == W_HTTP_DONE && rest.size > 0)
        result = next_line(&rest, &line) ? parse_field(r, line) : 400;
    return result == W_HTTP_DONE && r->whole_host.at == NULL ? 400 : result;
}

/* ---- what it asks for ------------------------------------------------------------------------------------------- */

struct w_piece w_http_value(const struct w_http *r, const char *name)
{
    struct w_piece rest = r->query;
    while (rest.size > 0) {
        struct w_piece value = cut(&rest, '&'), key = cut(&value, '=');
        if (w_piece_is(key, name))
            return value;
    }
    return (struct w_piece){0};
}

/* Digits, and perhaps a point and up to three more. */
long w_http_ms(const struct w_http *r, const char *name, long otherwise, long most)
{
    struct w_piece text = w_http_value(r, name);
    if (text.at == NULL)
        return otherwise;
    struct w_piece fraction = text, whole = cut(&fraction, '.');
    if (whole.size == 0 || whole.size > 6 || fraction.size > 3 || !all(whole, is_digit) || !all(fraction, is_digit) ||
        (fraction.size == 0 && whole.size != text.size))
        return -1;
    long ms = 0;
    for (size_t i = 0; i < whole.size; i++)
        ms = ms * 10 + (whole.at[i] - '0');
    for (size_t i = 0; i < 3; i++)
        ms = ms * 10 + (i < fraction.size ? fraction.at[i] - '0' : 0);
    return ms <= most ? ms : -1;
}

/* ---- who asks --------------------------------------------------------------------------------------------------- */

/* 127.0.0.1 and all that begin with 127, as four numbers: a name may begin so too. */
static bool is_loopback_number(struct w_piece host)
{
    struct w_piece rest = host;
    int parts = 0;
    bool numbers = w_piece_is(cut(&rest, '.'), "127");
    for (; numbers && rest.size > 0; parts++) {
        struct w_piece part = cut(&rest, '.');
        numbers = part.size > 0 && part.size <= 3 && all(part, is_digit);
    }
    return numbers && parts == 3 && host.at[host.size - 1] != '.';
}

bool w_host_is_local(struct w_piece host)
{
    return is_in_any_case(host, "localhost") || w_piece_is(host, "[::1]") ||
           (host.size > 0 && is_loopback_number(host));
}

bool w_origin_is(struct w_piece origin, struct w_piece whole_host)
{
    const char *scheme = "http://";
    if (!begins_in_any_case(origin, scheme))
        return false;
    struct w_piece host = after(origin, strlen(scheme));
    return host.size == whole_host.size && memcmp(host.at, whole_host.at, host.size) == 0;
}

bool w_token_is(struct w_piece given, const char *token)
{
    size_t n = strlen(token);
    unsigned char differs = 0;
    if (given.at == NULL || given.size != n)
        return false;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(given.at[i] ^ token[i]);
    return differs == 0 && n > 0;
}
