/* SPDX-License-Identifier: MIT */
/* Addresses as text: which there are, and what is none. Nothing is looked up or opened here. */
#include "address.h"
#include "check.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static struct w_address parsed(const char *text)
{
    struct w_address a;
    memset(&a, 0xa5, sizeof a); /* it may lie on a stack as it is */
    int r = w_address_parse(text, &a);
    if (r != 0)
        check_fail(__FILE__, __LINE__, "\"%s\" is refused with %d", text, r);
    return a;
}

static void refused(const char *text, int with)
{
    struct w_address a;
    int r = w_address_parse(text, &a);
    if (r != with)
        check_fail(__FILE__, __LINE__, "\"%s\" gives %d, not %d", text != NULL ? text : "(null)", r, with);
}

static void all_refused(const char *const *texts)
{
    for (; *texts != NULL; texts++)
        refused(*texts, -EINVAL);
}

/* The character n times, between two texts. */
static const char *long_text(const char *before, char c, size_t n, const char *after)
{
    static char text[4096];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", before);
    memset(text + at, c, n);
    snprintf(text + at + n, sizeof text - at - n, "%s", after);
    return text;
}

/* ---- hosts ------------------------------------------------------------------------------------------------------ */

static void is_ipv4(const char *text, uint32_t host, uint16_t port)
{
    struct w_address a = parsed(text);
    CHECK_EQ(a.host, W_HOST_IPV4);
    CHECK_EQ(a.length, sizeof(struct sockaddr_in));
    CHECK_EQ(a.sa.in.sin_family, AF_INET);
    CHECK_EQ(ntohl(a.sa.in.sin_addr.s_addr), host);
    CHECK_EQ(ntohs(a.sa.in.sin_port), port);
    CHECK_EQ(a.port, port);
    CHECK_EQ(a.service[0], 0);
}

CASE(ipv4_literals)
{
    is_ipv4("127.0.0.1:8080", INADDR_LOOPBACK, 8080);
    is_ipv4("0.0.0.0:0", 0, 0);
    is_ipv4("255.255.255.255:65535", 0xffffffff, 65535);
    is_ipv4("192.168.0.1:1", 0xc0a80001, 1);
}

static void is_ipv6(const char *text, const char *host, const char *zone, uint16_t port)
{
    struct in6_addr expected;
    struct w_address a = parsed(text);
    CHECK_EQ(inet_pton(AF_INET6, host, &expected), 1);
    CHECK_EQ(a.host, W_HOST_IPV6);
    CHECK_EQ(a.length, sizeof(struct sockaddr_in6));
    CHECK_EQ(a.sa.in6.sin6_family, AF_INET6);
    CHECK_EQ(memcmp(&a.sa.in6.sin6_addr, &expected, sizeof expected), 0);
    CHECK_EQ(a.sa.in6.sin6_scope_id, 0); /* whoever uses it looks the zone up */
    CHECK_EQ(ntohs(a.sa.in6.sin6_port), port);
    CHECK_EQ(strcmp(a.zone, zone), 0);
}

CASE(ipv6_literals_in_brackets)
{
    is_ipv6("[::1]:8080", "::1", "", 8080);
    is_ipv6("[::]:0", "::", "", 0);
    is_ipv6("[2001:DB8::a:b]:65535", "2001:db8::a:b", "", 65535);
    is_ipv6("[1111:2222:3333:4444:5555:6666:255.255.255.255]:1", "1111:2222:3333:4444:5555:6666:ffff:ffff", "", 1);
    is_ipv6("[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1", "", 80);
}

CASE(ipv6_literals_with_a_zone)
{
    is_ipv6("[fe80::1%eth0]:80", "fe80::1", "eth0", 80);
    is_ipv6("[fe80::1%3]:80", "fe80::1", "3", 80);
    is_ipv6("[fe80::1%eth0.100:1-x]:80", "fe80::1", "eth0.100:1-x", 80);
    is_ipv6("[fe80::1%fifteen-letters]:80", "fe80::1", "fifteen-letters", 80);
}

static void is_name(const char *text, const char *name, uint16_t port)
{
    struct w_address a = parsed(text);
    CHECK_EQ(a.host, W_HOST_NAME);
    CHECK_EQ(a.length, 0);
    CHECK_EQ(strcmp(a.name, name), 0);
    CHECK_EQ(a.port, port);
}

CASE(names)
{
    is_name("localhost:80", "localhost", 80);
    is_name("a:1", "a", 1);
    is_name("www.Example.COM:443", "www.Example.COM", 443);
    is_name("www.example.com.:443", "www.example.com.", 443);
    is_name("3com.com:1", "3com.com", 1);
    is_name("1.2.3.4.example:1", "1.2.3.4.example", 1);
    is_name("xn--bcher-kva.example:1", "xn--bcher-kva.example", 1);
    is_name("_sip._tcp.a-b:1", "_sip._tcp.a-b", 1);
    is_name("0xyz:1", "0xyz", 1);
    is_name("unix.example:1", "unix.example", 1);
    is_name("unixx:1", "unixx", 1);
}

CASE(names_as_long_as_names_may_be)
{
    char name[300] = "", text[310];
    for (int i = 0; i < 3; i++)
        strcat(name, long_text("", 'x', 63, "."));
    strcat(name, long_text("", 'y', 61, ""));
    CHECK_EQ(strlen(name), 253);
    snprintf(text, sizeof text, "%s:1", name);
    is_name(text, name, 1);
    strcat(name, ".");
    snprintf(text, sizeof text, "%s:1", name);
    is_name(text, name, 1);
    name[253] = 'y';
    snprintf(text, sizeof text, "%s:1", name);
    refused(text, -EINVAL);
    strcat(name, ".");
    snprintf(text, sizeof text, "%s:1", name);
    refused(text, -EINVAL);
    refused(long_text("", 'x', 64, ":1"), -EINVAL);
    refused(long_text("a.", 'x', 64, ".b:1"), -EINVAL);
    refused(long_text("", 'x', 4000, ":1"), -EINVAL);
}

CASE(no_host_at_all)
{
    struct w_address a = parsed(":8080");
    CHECK_EQ(a.host, W_HOST_NONE);
    CHECK_EQ(a.port, 8080);
    CHECK_EQ(a.length, 0);
    CHECK_EQ(parsed(":0").port, 0);
}

CASE(what_is_no_host)
{
    static const char *const texts[] = {
        "a b:80",        " a:80",         "a :80",       "a\t:80",      "a\n:80",       "a..b:80",
        ".a:80",         ".:80",          "..:80",       "a..:80",      "a/b:80",       "a@b:80",
        "http://a:80",   "a:b:80",        "::1:80",      "::1",         "::",           "1::2:80",
        "[::1:80",       "::1]:80",       "[::1]80",     "[::1]",       "[::1",         "[]:80",
        "[:80",          "]:80",          "[::1]]:80",   "[[::1]]:80",  "[::1]x:80",    "x[::1]:80",
        "[127.0.0.1]:1", "[localhost]:1", "[::1%]:80",   "[%lo]:80",    "[::1%a b]:80", "[::1%a%b]:80",
        "[::1%a/b]:80",  "[::1 ]:80",     "[ ::1]:80",   "[::g]:80",    "[1:2:3]:80",   "[:::]:80",
        "[::1%a[b]:80",  "127.0.0:80",    "127.1:80",    "256.0.0.1:1", "1.2.3.4.5:80", "127.0.0.01:80",
        "127.0.0.1.:80", "2130706433:80", "0x7f.1:80",   "0x7F:80",     "a.0x:80",      "a.1:80",
        "0x:80",         "1:80",          "b\xc3\xbc:1", "\x80:1",      "a\177b:1",     "*:80",
        "%lo:80",        "a%lo:80",       "'a':80",      NULL};
    all_refused(texts);
    refused(long_text("[::1%", 'x', 16, "]:80"), -EINVAL);
    refused(long_text("[", '1', 300, "]:80"), -EINVAL);
    refused(long_text("[", ':', 46, "]:80"), -EINVAL);
}

/* ---- ports ------------------------------------------------------------------------------------------------------ */

CASE(ports_are_numbers)
{
    CHECK_EQ(parsed("a:0").port, 0);
    CHECK_EQ(parsed("a:00080").port, 80);
    CHECK_EQ(parsed("a:0000000000000000000000065535").port, 65535);
    CHECK_EQ(parsed("a:65535").service[0], 0);
}

static void is_service(const char *text, const char *service)
{
    struct w_address a = parsed(text);
    CHECK_EQ(strcmp(a.service, service), 0);
    CHECK_EQ(a.port, 0);
}

CASE(ports_are_services)
{
    is_service("a:http", "http");
    is_service(":http", "http");
    is_service("127.0.0.1:x11-1", "x11-1");
    is_service("[::1]:a_b.c+d", "a_b.c+d");
    is_service(long_text("a:", 'x', 31, ""), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
}

CASE(what_is_no_port)
{
    static const char *const texts[] = {
        "",        "a",       "127.0.0.1", "localhost", ":",        "a:",    "127.0.0.1:", "[::1]:",  "a:65536",
        "a:99999", "a:70000", "a:-1",      "a:+1",      "a: 80",    "a:80 ", "a:8 0",      "a:80x",   "a:0x50",
        "a:1e3",   "a:80:",   "a:80:90",   "a:http:",   "a:ht tp",  "a:/80", "a:80/tcp",   "a:-x",    "a:_x",
        "a:.",     "a:h\xc3", "a:80\n",    "a:*",       "[::1]:-1", " ",     "\n",         "[::1]: ", NULL};
    all_refused(texts);
    refused(NULL, -EINVAL);
    refused("a:4294967376", -EINVAL);           /* 2^32 + 80 */
    refused("a:18446744073709551696", -EINVAL); /* 2^64 + 80 */
    refused(long_text("a:", '9', 1000, ""), -EINVAL);
    refused(long_text("a:", 'x', 32, ""), -EINVAL);
}

/* ---- paths ------------------------------------------------------------------------------------------------------ */

static void is_path(const char *path)
{
    char text[300];
    snprintf(text, sizeof text, "unix:%s", path);
    struct w_address a = parsed(text);
    CHECK_EQ(a.host, W_HOST_UNIX);
    CHECK_EQ(a.sa.un.sun_family, AF_UNIX);
    CHECK_EQ(strcmp(a.sa.un.sun_path, path), 0);
    CHECK_EQ(a.length, offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1);
}

CASE(paths_of_sockets)
{
    is_path("/tmp/a");
    is_path("/");
    is_path("/with spaces/and:colons/@/\xc3\xbc");
    is_path("./a");
    is_path("../a");
    is_path(long_text("/", 'x', 106, ""));
    refused(long_text("unix:/", 'x', 107, ""), -ENAMETOOLONG);
    refused(long_text("unix:/", 'x', 3000, ""), -ENAMETOOLONG);
}

static void is_abstract(const char *name)
{
    char text[300];
    snprintf(text, sizeof text, "unix:@%s", name);
    struct w_address a = parsed(text);
    CHECK_EQ(a.host, W_HOST_UNIX);
    CHECK_EQ(a.sa.un.sun_path[0], 0);
    CHECK_EQ(memcmp(a.sa.un.sun_path + 1, name, strlen(name)), 0);
    CHECK_EQ(a.length, offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

CASE(abstract_names_of_sockets)
{
    is_abstract("a");
    is_abstract("/@ :");
    is_abstract(long_text("", 'x', 107, ""));
    refused(long_text("unix:@", 'x', 108, ""), -ENAMETOOLONG);
}

CASE(what_is_no_path)
{
    static const char *const texts[] = {"unix",     "unix:",    "unix:@",  "unix:a",   "unix:8080",
                                        "unix: /a", " unix:/a", "UNIX:/a", "unix/a:b", NULL};
    all_refused(texts);
}
