/* SPDX-License-Identifier: MIT */
/*
 * Addresses as text.
 *
 *      address  =  [host] ":" port  |  "unix:" path  |  "unix:@" name
 *      host     =  IPv4  |  "[" IPv6 ["%" zone] "]"  |  label {"." label} ["."]
 *      port     =  0 .. 65535  |  service
 *      path     =  ("/" | ".") any bytes
 *
 * The resolver takes more for an address than a reader does: "127.1", "0x7f.1" and "2130706433" are 127.0.0.1 to it, and it
 * sends "a b" to a name server. So what ends in a number is an IPv4 literal in full or an error, names consist of what
 * names consist of, and everything that is not accepted here is refused before anybody is asked.
 *
 * Rejected: host and port from a URL, "[name]:80", "::1:80", white space anywhere. One way to write each address.
 */
#include "address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum { LABEL_MAX = 63 };

/* By their codes: what <ctype.h> says depends on the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool all(const char *s, size_t n, bool (*is)(char c))
{
    for (size_t i = 0; i < n; i++)
        if (!is(s[i]))
            return false;
    return true;
}

/* n bytes as a string, if it fits. */
static bool copy(char *to, size_t size, const char *from, size_t n)
{
    if (n >= size)
        return false;
    memcpy(to, from, n);
    to[n] = '\0';
    return true;
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

static int parse_number(const char *s, uint16_t *port)
{
    uint32_t n = 0;
    for (; is_digit(*s) && n <= UINT16_MAX; s++)
        n = n * 10 + (uint32_t)(*s - '0');
    *port = (uint16_t)n;
    return *s == '\0' && n <= UINT16_MAX ? 0 : -EINVAL;
}

static bool in_service(char c)
{
    return is_letter(c) || is_digit(c) || c == '-' || c == '_' || c == '.' || c == '+';
}

/* What begins with a digit is a number, whatever follows. */
static int parse_port(const char *s, struct w_address *a)
{
    if (is_digit(*s))
        return parse_number(s, &a->port);
    size_t n = strnlen(s, sizeof a->service);
    return is_letter(*s) && all(s, n, in_service) && copy(a->service, sizeof a->service, s, n) ? 0 : -EINVAL;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static bool in_name(char c)
{
    return is_letter(c) || is_digit(c) || c == '-' || c == '_';
}

/* Does the resolver take a name that ends in this label for a number? */
static bool is_number(const char *label, size_t n)
{
    bool hex = n >= 2 && label[0] == '0' && (label[1] == 'x' || label[1] == 'X');
    return hex ? all(label + 2, n - 2, is_hex) : all(label, n, is_digit);
}

/* Labels with dots between them, one more dot at the end if need be. */
static int parse_name(const char *s, size_t n, struct w_address *a)
{
    const char *end = s + n;
    if (n > 1 && end[-1] == '.')
        end--;
    if (end - s > W_NAME_MAX || !copy(a->name, sizeof a->name, s, n))
        return -EINVAL;
    for (const char *label = s; label <= end;) {
        const char *dot = memchr(label, '.', (size_t)(end - label));
        size_t k = (size_t)((dot != NULL ? dot : end) - label);
        bool bad = k == 0 || k > LABEL_MAX || !all(label, k, in_name);
        if (bad || (dot == NULL && is_number(label, k)))
            return -EINVAL;
        label += k + 1;
    }
    a->host = W_HOST_NAME;
    return 0;
}

static int parse_plain(const char *s, size_t n, struct w_address *a)
{
    char text[INET_ADDRSTRLEN];
    if (n == 0)
        return 0;
    if (!copy(text, sizeof text, s, n) || inet_pton(AF_INET, text, &a->sa.in.sin_addr) != 1)
        return parse_name(s, n, a);
    a->host = W_HOST_IPV4;
    a->sa.in.sin_family = AF_INET;
    a->length = sizeof a->sa.in;
    return 0;
}

static bool in_zone(char c)
{
    return c > ' ' && c != 0x7f && c != '/' && c != '%' && c != '[' && c != ']';
}

/* What stands between brackets. */
static int parse_ipv6(const char *s, size_t n, struct w_address *a)
{
    char text[INET6_ADDRSTRLEN];
    const char *percent = memchr(s, '%', n);
    size_t k = percent != NULL ? (size_t)(percent - s) : n;
    if (!copy(text, sizeof text, s, k) || inet_pton(AF_INET6, text, &a->sa.in6.sin6_addr) != 1)
        return -EINVAL;
    if (percent != NULL) {
        size_t z = n - k - 1;
        if (z == 0 || !all(percent + 1, z, in_zone) || !copy(a->zone, sizeof a->zone, percent + 1, z))
            return -EINVAL;
    }
    a->host = W_HOST_IPV6;
    a->sa.in6.sin6_family = AF_INET6;
    a->length = sizeof a->sa.in6;
    return 0;
}

/* The host, up to the colon before the port, which is returned; NULL: there is none, or what is before it is no host. */
static const char *parse_host(const char *s, struct w_address *a)
{
    if (*s != '[') {
        const char *colon = strchr(s, ':');
        return colon != NULL && parse_plain(s, (size_t)(colon - s), a) == 0 ? colon : NULL;
    }
    const char *close = strchr(s, ']');
    bool good = close != NULL && close[1] == ':' && parse_ipv6(s + 1, (size_t)(close - s) - 1, a) == 0;
    return good ? close + 1 : NULL;
}

static int parse_inet(const char *s, struct w_address *a)
{
    const char *colon = parse_host(s, a);
    if (colon == NULL || parse_port(colon + 1, a) != 0)
        return -EINVAL;
    if (a->host == W_HOST_IPV4)
        a->sa.in.sin_port = htons(a->port);
    else if (a->host == W_HOST_IPV6)
        a->sa.in6.sin6_port = htons(a->port);
    return 0;
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

/* An abstract name is as long as `length` says; a path ends with a zero byte, which counts. */
static int parse_unix(const char *s, struct w_address *a)
{
    struct sockaddr_un *un = &a->sa.un;
    size_t n = strlen(s), most = sizeof un->sun_path;
    bool abstract = *s == '@';
    if (abstract ? n == 1 : *s != '/' && *s != '.')
        return -EINVAL;
    if (n > (abstract ? most : most - 1))
        return -ENAMETOOLONG;
    memcpy(un->sun_path, s, n);
    if (abstract)
        un->sun_path[0] = '\0';
    a->host = W_HOST_UNIX;
    un->sun_family = AF_UNIX;
    a->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    return 0;
}

int w_address_parse(const char *text, struct w_address *a)
{
    static const char unix_prefix[] = "unix:";
    memset(a, 0, sizeof *a); /* W_HOST_NONE; two that mean the same are the same, byte for byte */
    if (text == NULL)
        return -EINVAL;
    size_t n = sizeof unix_prefix - 1;
    return strncmp(text, unix_prefix, n) == 0 ? parse_unix(text + n, a) : parse_inet(text, a);
}
