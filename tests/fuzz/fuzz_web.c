/* SPDX-License-Identifier: MIT */
/*
 * What a client sends to the live picture.
 *
 *   1. Cut anywhere in two it gives the same, and what lies behind the bytes is not touched: they are copied to the byte.
 *   2. A head that is accepted is one by a second look that shares nothing with the parser's: lines that end in CRLF and hold no control
 *      character, one Host, no body. Its parts lie in it.
 *   3. No name but those of this machine is taken for one of them: what is local has only digits and dots, or is one of two words.
 *   4. Numbers are in their range; a token is right if it is the same, and only then.
 *
 * Sources: web/request.c
 */
#include "../../web/request.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "not so: %s\n", what);
    abort();
}

#define MUST(cond) must(cond, #cond)

static bool lies_in(struct w_piece part, const char *bytes, size_t size)
{
    return part.at == NULL || (part.at >= bytes && part.at + part.size <= bytes + size);
}

static void line_is_right(const char *line, size_t n, int *hosts)
{
    MUST(n > 0 && line[0] != ' ' && line[0] != '\t');
    for (size_t i = 0; i < n; i++)
        MUST((unsigned char)line[i] >= ' ' ? line[i] != '\x7f' : line[i] == '\t');
    *hosts += n >= 5 && strncasecmp(line, "host:", 5) == 0;
    MUST(n < 18 || strncasecmp(line, "transfer-encoding:", 18) != 0);
}

static void head_is_right(const struct w_http *r, const char *bytes)
{
    int hosts = 0;
    MUST(r->size >= 4 && r->size <= W_HTTP_MAX && memcmp(bytes + r->size - 4, "\r\n\r\n", 4) == 0);
    MUST(memcmp(bytes, r->head ? "HEAD /" : "GET /", r->head ? 6 : 5) == 0);
    for (size_t at = 0; at < r->size - 2;) {
        const char *end = memmem(bytes + at, r->size - at, "\r\n", 2);
        line_is_right(bytes + at, (size_t)(end - bytes) - at, &hosts);
        at = (size_t)(end - bytes) + 2;
    }
    MUST(hosts == 1);
    const struct w_piece parts[] = {r->path, r->query, r->host, r->whole_host, r->origin, r->bearer};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        MUST(lies_in(parts[i], bytes, r->size));
    MUST(r->path.size > 0 && r->path.at[0] == '/' && memchr(r->path.at, '?', r->path.size) == NULL);
}

static void asker_is_right(const struct w_http *r)
{
    char host[W_HTTP_MAX + 1];
    snprintf(host, sizeof host, "%.*s", (int)r->host.size, r->host.at);
    if (w_host_is_local(r->host))
        MUST(strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
             (strncmp(host, "127.", 4) == 0 && strspn(host, "0123456789.") == strlen(host)));
    struct w_piece token = w_http_value(r, "token");
    MUST(w_token_is(token, "sesame") == (token.at != NULL && token.size == 6 && memcmp(token.at, "sesame", 6) == 0));
    long ms = w_http_ms(r, "seconds", 7, 60000);
    MUST(ms >= -1 && ms <= 60000);
}

static int parse_copy(const uint8_t *data, size_t size)
{
    struct w_http r;
    char *bytes = malloc(size + (size == 0)); /* to the byte: a sanitizer sees who reads on */
    memcpy(bytes, data, size);
    int result = w_http_parse(&r, bytes, size);
    if (result == W_HTTP_DONE) {
        head_is_right(&r, bytes);
        asker_is_right(&r);
    }
    free(bytes);
    return result;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int whole = parse_copy(data, size);
    MUST(whole == W_HTTP_MORE || whole == W_HTTP_DONE || whole == 400 || whole == 405 || whole == 413 || whole == 431 ||
         whole == 505);
    MUST(whole != W_HTTP_MORE || size < W_HTTP_MAX);
    for (size_t cut = 0; cut < size; cut += 1 + size / 64) {
        int part = parse_copy(data, cut);
        MUST(part == W_HTTP_MORE || part == whole);
    }
    return 0;
}
