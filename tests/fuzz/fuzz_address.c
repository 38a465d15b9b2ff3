/* SPDX-License-Identifier: MIT */
/*
 * Any text is an address or is refused, and an address means what it says: written out again and parsed again it is the
 * same, and getaddrinfo, which looks literals up without asking anybody, agrees about them.
 *
 * Sources: src/address.c
 */
#include "address.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds, const char *what, const char *text)
{
    if (holds)
        return;
    fprintf(stderr, "\"%s\": not so: %s\n", text, what);
    abort();
}

#define MUST(cond) must(cond, #cond, text)

/* ---- the same, written out -------------------------------------------------------------------------------------- */

static void print_host(const struct w_address *a, char *to, size_t size)
{
    char number[INET6_ADDRSTRLEN] = "";
    if (a->host == W_HOST_IPV4)
        snprintf(to, size, "%s", inet_ntop(AF_INET, &a->sa.in.sin_addr, number, sizeof number));
    else if (a->host == W_HOST_IPV6)
        snprintf(to, size, "[%s%s%s]", inet_ntop(AF_INET6, &a->sa.in6.sin6_addr, number, sizeof number),
                 a->zone[0] != '\0' ? "%" : "", a->zone);
    else
        snprintf(to, size, "%s", a->name);
}

static void print_address(const struct w_address *a, char *to, size_t size)
{
    char host[300], port[8];
    snprintf(port, sizeof port, "%u", a->port);
    if (a->host == W_HOST_UNIX) {
        size_t n = a->length - offsetof(struct sockaddr_un, sun_path);
        snprintf(to, size, "unix:%.*s", (int)n, a->sa.un.sun_path);
        if (a->sa.un.sun_path[0] == '\0')
            snprintf(to, size, "unix:@%.*s", (int)n - 1, a->sa.un.sun_path + 1);
        return;
    }
    print_host(a, host, sizeof host);
    snprintf(to, size, "%s:%s", host, a->service[0] != '\0' ? a->service : port);
}

static void comes_back(const struct w_address *a, const char *text)
{
    char again[400];
    struct w_address b;
    print_address(a, again, sizeof again);
    MUST(w_address_parse(again, &b) == 0);
    MUST(memcmp(a, &b, sizeof b) == 0); /* padding too: it is zeroed */
}

/* ---- what holds for each kind ------------------------------------------------------------------------------------ */

static void port_is_right(const struct w_address *a, const char *text)
{
    const char *port = strrchr(text, ':') + 1;
    if (a->service[0] != '\0')
        MUST(strcmp(port, a->service) == 0 && a->port == 0);
    else
        MUST(strtoull(port, NULL, 10) == a->port);
}

static bool looks_up(const char *host, int flags, struct addrinfo **list)
{
    struct addrinfo hints = {.ai_flags = flags, .ai_socktype = SOCK_STREAM};
    return getaddrinfo(host, NULL, &hints, list) == 0;
}

static void literal_is_right(const struct w_address *a, const char *text)
{
    struct addrinfo *list = NULL;
    struct w_address b = *a;
    char host[300];
    b.zone[0] = '\0';
    print_host(&b, host, sizeof host);
    if (a->host == W_HOST_IPV6)
        memmove(host, host + 1, strlen(host)), host[strlen(host) - 1] = '\0';
    MUST(looks_up(host, AI_NUMERICHOST, &list));
    MUST(list->ai_addrlen == a->length && list->ai_family == a->sa.any.sa_family);
    b.sa.in.sin_port = 0; /* of either: they lie in the same place */
    MUST(memcmp(list->ai_addr, &b.sa, b.length) == 0);
    freeaddrinfo(list);
}

/* It would be an address that the reader did not see. */
static void name_is_no_number(const struct w_address *a, const char *text)
{
    struct addrinfo *list = NULL;
    MUST(a->name[0] != '\0' && strspn(a->name, "\t\n ") == 0 && strchr(a->name, ':') == NULL);
    MUST(!looks_up(a->name, AI_NUMERICHOST, &list));
}

static void unix_is_right(const struct w_address *a, const char *text)
{
    size_t n = strlen(text + strlen("unix:"));
    bool abstract = a->sa.un.sun_path[0] == '\0';
    MUST(a->length <= sizeof a->sa.un && a->sa.un.sun_family == AF_UNIX);
    MUST(a->length == offsetof(struct sockaddr_un, sun_path) + n + !abstract);
    MUST(abstract == (text[strlen("unix:")] == '@'));
}

static void is_right(const struct w_address *a, const char *text)
{
    if (a->host == W_HOST_UNIX) {
        unix_is_right(a, text);
        return;
    }
    port_is_right(a, text);
    if (a->host == W_HOST_NAME)
        name_is_no_number(a, text);
    else if (a->host != W_HOST_NONE)
        literal_is_right(a, text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct w_address a;
    char *text = malloc(size + 1); /* to the byte: a sanitizer sees who reads on */
    if (text == NULL)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    memset(&a, 0xa5, sizeof a);
    int r = w_address_parse(text, &a);
    MUST(r == 0 || r == -EINVAL || r == -ENAMETOOLONG);
    if (r == 0) {
        is_right(&a, text);
        comes_back(&a, text);
    }
    free(text);
    return 0;
}
