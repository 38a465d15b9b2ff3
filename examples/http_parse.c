/* SPDX-License-Identifier: MIT */
/*
 * The parser of http_parse.h.
 *
 * Invariants, which the fuzzer checks:
 *   1. The result for some bytes is the result for them in any two pieces.
 *   2. HTTP_MORE is never returned for HTTP_HEAD_MAX unused bytes: whoever has such a buffer is never stuck.
 *   3. After an error the request is not used any more: there is no way to find the beginning of the next one.
 */
#include <string.h>
#include "http_parse.h"

struct text {
    const char *at;
    size_t size;
};

/* ---- characters ------------------------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_token(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
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

static bool all(struct text text, bool (*is)(char))
{
    for (size_t i = 0; i < text.size; i++)
        if (!is(text.at[i]))
            return false;
    return true;
}

/* -1: none. */
static int hex_digit(char c)
{
    return is_digit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* ---- pieces of text --------------------------------------------------------------------------------------------- */

static bool equals(struct text text, const char *word)
{
    return text.size == strlen(word) && memcmp(text.at, word, text.size) == 0;
}

/* Of A to Z, whatever the locale. */
static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool equals_in_any_case(struct text text, const char *word)
{
    bool same = text.size == strlen(word);
    for (size_t i = 0; same && i < text.size; i++)
        same = lower(text.at[i]) == lower(word[i]);
    return same;
}

/* Cuts off what lies before the first c, with the c; all of it if there is none. */
static struct text cut(struct text *text, char c)
{
    const char *end = memchr(text->at, c, text->size);
    struct text first = {text->at, end == NULL ? text->size : (size_t)(end - text->at)};
    size_t gone = first.size + (end != NULL);
    *text = (struct text){text->at + gone, text->size - gone};
    return first;
}

static struct text trimmed(struct text text)
{
    while (text.size > 0 && (text.at[0] == ' ' || text.at[0] == '\t'))
        text = (struct text){text.at + 1, text.size - 1};
    while (text.size > 0 && (text.at[text.size - 1] == ' ' || text.at[text.size - 1] == '\t'))
        text.size--;
    return text;
}

/* The first line, which with its CRLF has line->size + 2 bytes, at most limit; past that the result is too_long. */
static int first_line(const char *bytes, size_t n, size_t limit, int too_long, struct text *line)
{
    const char *lf = memchr(bytes, '\n', n < limit ? n : limit);
    if (lf == NULL)
        return n < limit ? HTTP_MORE : too_long;
    if (lf == bytes || lf[-1] != '\r')
        return 400;
    *line = (struct text){bytes, (size_t)(lf - bytes) - 1};
    return HTTP_DONE;
}

/* ---- the head --------------------------------------------------------------------------------------------------- */

/* HTTP/1.2 and later are answered like 1.1, as the standard says. */
static int parse_version(struct http_request *r, struct text version)
{
    if (version.size != 8 || memcmp(version.at, "HTTP/", 5) != 0 || !is_digit(version.at[5]) || version.at[6] != '.' ||
        !is_digit(version.at[7]))
        return 400;
    r->minor = version.at[7] - '0';
    return version.at[5] == '1' ? HTTP_DONE : 505;
}

static int parse_request_line(struct http_request *r, struct text line)
{
    struct text rest = line, method = cut(&rest, ' '), target = cut(&rest, ' ');
    if (method.size == 0 || !all(method, is_token) || target.size == 0 || !all(target, is_visible))
        return 400;
    r->method = equals(method, "GET") ? HTTP_GET : equals(method, "HEAD") ? HTTP_HEAD : HTTP_OTHER;
    r->target_offset = r->size + (size_t)(target.at - line.at);
    r->target_size = target.size;
    r->begun = true;
    return parse_version(r, rest);
}

static int on_host(struct http_request *r, struct text value)
{
    (void)value;
    r->hosts++;
    return HTTP_DONE;
}

/* A number too large for the type is too large for us: it stays above HTTP_BODY_MAX. */
static int on_content_length(struct http_request *r, struct text value)
{
    if (value.size == 0 || !all(value, is_digit) || r->lengths++ > 0)
        return 400;
    for (size_t i = 0; i < value.size; i++)
        if (r->left <= HTTP_BODY_MAX)
            r->left = r->left * 10 + (uint64_t)(value.at[i] - '0');
    return HTTP_DONE;
}

static int on_transfer_encoding(struct http_request *r, struct text value)
{
    if (r->encodings++ > 0)
        return 400;
    return equals_in_any_case(value, "chunked") ? HTTP_DONE : 501;
}

static int on_connection(struct http_request *r, struct text value)
{
    while (value.size > 0) {
        struct text option = trimmed(cut(&value, ','));
        r->close |= equals_in_any_case(option, "close");
        r->keep_alive |= equals_in_any_case(option, "keep-alive");
    }
    return HTTP_DONE;
}

static int on_expect(struct http_request *r, struct text value)
{
    r->expects |= equals_in_any_case(value, "100-continue");
    return HTTP_DONE;
}

static int parse_known(struct http_request *r, struct text name, struct text value)
{
    static const struct {
        const char *name;
        int (*parse)(struct http_request *, struct text);
    } known[] = {{"Host", on_host},
                 {"Content-Length", on_content_length},
                 {"Transfer-Encoding", on_transfer_encoding},
                 {"Connection", on_connection},
                 {"Expect", on_expect}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (equals_in_any_case(name, known[i].name))
            return known[i].parse(r, value);
    return HTTP_DONE;
}

/* A name is a token: a folded line and a space before the colon fail here. */
static int parse_field(struct http_request *r, struct text line, struct text *name, struct text *value)
{
    *value = line;
    *name = cut(value, ':');
    if (name->size == 0 || name->size == line.size || !all(*name, is_token) || !all(*value, is_text))
        return 400;
    *value = trimmed(*value);
    return ++r->fields > HTTP_FIELDS_MAX ? 431 : HTTP_DONE;
}

/* HTTP/1.0 had neither Host nor chunks. */
static int finish_head(struct http_request *r)
{
    bool old = r->minor == 0, chunked = r->encodings > 0;
    if (r->hosts > 1 || (r->hosts == 0 && !old) || (chunked && (old || r->lengths > 0)))
        return 400;
    if (r->left > HTTP_BODY_MAX)
        return 413;
    r->close |= old && !r->keep_alive;
    r->expects &= !old && (chunked || r->left > 0);
    r->framing = chunked ? HTTP_CHUNK_SIZE : HTTP_SIZED;
    r->fields = 0;
    return HTTP_DONE;
}

/* HTTP_MORE: the line is done with, and the head goes on. Empty lines before it are left over from some clients' bodies. */
static int parse_head_line(struct http_request *r, struct text line)
{
    struct text name, value;
    int result;
    if (line.size == 0)
        return r->begun ? finish_head(r) : HTTP_MORE;
    if (!r->begun)
        result = parse_request_line(r, line);
    else if ((result = parse_field(r, line, &name, &value)) == HTTP_DONE)
        result = parse_known(r, name, value);
    return result == HTTP_DONE ? HTTP_MORE : result;
}

int http_head(struct http_request *r, const char *bytes, size_t n)
{
    struct text line;
    int result;
    do {
        result = first_line(bytes + r->size, n - r->size, HTTP_HEAD_MAX - r->size, r->begun ? 431 : 414, &line);
        if (result != HTTP_DONE)
            return result;
        result = parse_head_line(r, line);
        r->size += line.size + 2;
    } while (result == HTTP_MORE);
    return result;
}

/* ---- the body --------------------------------------------------------------------------------------------------- */

/* Bytes that nobody looks at. */
static int skip_data(struct http_request *r, size_t n, enum http_framing next, size_t *used)
{
    *used = n < r->left ? n : (size_t)r->left;
    r->left -= *used;
    if (r->left > 0)
        return HTTP_MORE;
    r->framing = next;
    return HTTP_DONE;
}

/* Hexadecimal, and behind a semicolon whatever the client likes. What is larger than a body may be stays so. */
static int parse_chunk_size(struct http_request *r, struct text line)
{
    struct text rest = line, digits = cut(&rest, ';');
    if (digits.size == 0 || digits.size > 16 || !all(rest, is_text))
        return 400;
    r->left = 0;
    for (size_t i = 0; i < digits.size; i++) {
        int digit = hex_digit(digits.at[i]);
        if (digit < 0)
            return 400;
        r->left = r->left << 4 | (uint64_t)digit;
    }
    if (r->left > HTTP_BODY_MAX || (r->body_size += r->left + line.size) > HTTP_BODY_MAX)
        return 413;
    r->framing = r->left > 0 ? HTTP_CHUNK_DATA : HTTP_TRAILER;
    return HTTP_DONE;
}

/* The line is empty: it was allowed no more than its CRLF. */
static int parse_chunk_end(struct http_request *r, struct text line)
{
    (void)line;
    r->framing = HTTP_CHUNK_SIZE;
    return HTTP_DONE;
}

/* A field there is checked and not believed: a Content-Length that comes so late means nothing. */
static int parse_trailer(struct http_request *r, struct text line)
{
    struct text name, value;
    r->trailer_size += line.size + 2;
    if (line.size > 0)
        return parse_field(r, line, &name, &value);
    r->framing = HTTP_COMPLETE;
    return HTTP_DONE;
}

static int next_piece(struct http_request *r, const char *bytes, size_t n, size_t *used)
{
    static int (*const parse[])(struct http_request *, struct text) = {
        [HTTP_CHUNK_SIZE] = parse_chunk_size, [HTTP_CHUNK_END] = parse_chunk_end, [HTTP_TRAILER] = parse_trailer};
    struct text line;
    if (r->framing == HTTP_SIZED || r->framing == HTTP_CHUNK_DATA)
        return skip_data(r, n, r->framing == HTTP_SIZED ? HTTP_COMPLETE : HTTP_CHUNK_END, used);
    bool trailer = r->framing == HTTP_TRAILER;
    size_t limit = trailer ? HTTP_HEAD_MAX - r->trailer_size : r->framing == HTTP_CHUNK_END ? 2 : HTTP_CHUNK_LINE_MAX;
    int result = first_line(bytes, n, limit, trailer ? 431 : 400, &line);
    if (result != HTTP_DONE)
        return result;
    *used = line.size + 2;
    return parse[r->framing](r, line);
}

int http_body(struct http_request *r, const char *bytes, size_t n, size_t *used)
{
    int result = HTTP_DONE;
    *used = 0;
    while (result == HTTP_DONE && r->framing != HTTP_COMPLETE) {
        size_t step = 0;
        result = next_piece(r, bytes + *used, n - *used, &step);
        *used += step;
    }
    return result;
}
