/* SPDX-License-Identifier: MIT */
/*
 * What a client sends on a connection, request after request.
 *
 *   1. Cut anywhere in two, or into single bytes, it gives the same requests and the same end.
 *   2. A buffer of HTTP_HEAD_MAX bytes is enough, and what lies behind the bytes is not touched: they are copied to the byte.
 *   3. A head that is accepted is what it must be, by a second look that shares nothing with the parser's: lines that end in
 *      CRLF, begin with a name and hold no control character; at most one of Content-Length and Transfer-Encoding.
 *   4. A body has the length that it says or that its chunks say, and a refusal is one of the statuses that there are.
 *
 * Sources: examples/http_parse.c
 */
#include "http_parse.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SMALL = 512 }; /* up to this size each cut is tried */

static void must(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "not so: %s\n", what);
    abort();
}

#define MUST(cond) must(cond, #cond)

/* ---- a connection ------------------------------------------------------------------------------------------------ */

struct reader {
    const uint8_t *data; /* the input */
    struct http_request request;
    bool in_body;
    size_t used;       /* of the input */
    size_t body_began; /* where in the input, if in_body */
    uint64_t sized;    /* Content-Length */
    int requests, end; /* how many were complete; the status of the refusal after them, if any */
    uint64_t trace;    /* of all that the requests said */
};

static void note(struct reader *reader, uint64_t value)
{
    reader->trace = (reader->trace ^ value) * UINT64_C(0x100000001b3);
}

static const char *line_after(const char *at, const char *end)
{
    const char *lf = memchr(at, '\n', (size_t)(end - at));
    MUST(lf != NULL && lf > at && lf[-1] == '\r');
    return lf + 1;
}

static bool line_is(const char *line, const char *name)
{
    for (; *name != '\0'; line++, name++)
        if ((*line >= 'A' && *line <= 'Z' ? *line | 32 : *line) != *name)
            return false; /* at the line's CR at the latest */
    return true;
}

static void line_is_right(const char *line, const char *next)
{
    MUST(line[0] != ' ' && line[0] != '\t');
    for (const char *c = line; c < next - 2; c++)
        MUST((unsigned char)*c >= ' ' ? *c != '\x7f' : *c == '\t');
}

static void head_is_right(const struct http_request *r, const char *head)
{
    const char *end = head + r->size;
    int lengths = 0, encodings = 0, hosts = 0;
    MUST(r->size <= HTTP_HEAD_MAX && r->size >= 4 && memcmp(end - 4, "\r\n\r\n", 4) == 0);
    for (const char *line = head, *next; line < end; line = next) {
        next = line_after(line, end);
        line_is_right(line, next);
        if (line_is(line, "content-length:")) {
            lengths++;
            MUST(strtoull(line + strlen("content-length:"), NULL, 10) == r->left);
        }
        encodings += line_is(line, "transfer-encoding:");
        hosts += line_is(line, "host:");
    }
    MUST(lengths + encodings <= 1 && (hosts == 1 || (hosts == 0 && r->minor == 0)));
    MUST((r->framing == HTTP_CHUNK_SIZE) == (encodings == 1) && (lengths == 1 || r->left == 0));
    MUST(r->left <= HTTP_BODY_MAX);
}

static void target_is_right(const struct http_request *r, const char *head)
{
    const char *target = head + r->target_offset;
    MUST(r->target_size > 0 && r->target_offset + r->target_size < r->size);
    MUST(target[-1] == ' ' && target[r->target_size] == ' ');
    MUST(memchr(target, ' ', r->target_size) == NULL && memchr(target, '\r', r->target_size) == NULL);
    MUST(memcmp(target + r->target_size, " HTTP/1.", 8) == 0);
    MUST(r->method != HTTP_GET || memcmp(target - 4, "GET ", 4) == 0);
}

static void begin_body(struct reader *reader, const char *head)
{
    struct http_request *r = &reader->request;
    head_is_right(r, head);
    target_is_right(r, head);
    note(reader, r->size << 8 | (uint64_t)r->method << 4 | (uint64_t)r->close << 1 | r->expects);
    note(reader, r->target_offset << 16 | r->target_size);
    reader->in_body = true;
    reader->used += r->size;
    reader->body_began = reader->used;
    reader->sized = r->framing == HTTP_SIZED ? r->left : UINT64_MAX;
}

/* Each size is followed by so many bytes and a line end, and the last, 0, by lines up to an empty one. */
static void chunks_are_right(const char *at, const char *end)
{
    for (uint64_t size = 1; size > 0;) {
        const char *next = line_after(at, end);
        size = strtoull(at, NULL, 16);
        MUST(size <= HTTP_BODY_MAX && (size == 0 || (uint64_t)(end - next) > size + 2));
        at = size == 0 ? next : line_after(next + size, end);
        MUST(size == 0 || at == next + size + 2);
    }
    while (end - at > 2) {
        MUST(memcmp(at, "\r\n", 2) != 0);
        at = line_after(at, end);
    }
    MUST(end - at == 2 && memcmp(at, "\r\n", 2) == 0);
}

static void end_request(struct reader *reader)
{
    uint64_t body = reader->used - reader->body_began;
    const char *at = (const char *)reader->data + reader->body_began;
    if (reader->sized == UINT64_MAX)
        chunks_are_right(at, at + body);
    else
        MUST(reader->sized == body);
    note(reader, body);
    reader->requests++;
    reader->request = (struct http_request){0};
    reader->in_body = false;
}

/* As a server does it. */
static int take(struct reader *reader, const char *bytes, size_t n)
{
    size_t used = 0;
    if (!reader->in_body) {
        int result = http_head(&reader->request, bytes, n);
        if (result == HTTP_DONE)
            begin_body(reader, bytes);
        return result;
    }
    int result = http_body(&reader->request, bytes, n, &used);
    MUST(used <= n && (result != HTTP_MORE || n - used < HTTP_HEAD_MAX));
    MUST(result > HTTP_DONE || reader->request.left <= HTTP_BODY_MAX);
    reader->used += used;
    if (result == HTTP_DONE)
        end_request(reader);
    return result;
}

/* The input's first size bytes have come, those before reader->used are gone. */
static void feed(struct reader *reader, size_t size)
{
    int result = HTTP_DONE;
    while (reader->end == 0 && result == HTTP_DONE) {
        size_t n = size - reader->used;
        char *bytes = malloc(n); /* to the byte: a sanitizer sees who reads on */
        if (n > 0)
            memcpy(bytes, reader->data + reader->used, n);
        result = take(reader, bytes, n);
        free(bytes);
        if (result == HTTP_MORE)
            MUST(size - reader->used < HTTP_HEAD_MAX);
        else if (result != HTTP_DONE)
            reader->end = result;
    }
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void same(const struct reader *a, const struct reader *b)
{
    MUST(a->requests == b->requests);
    MUST(a->end == b->end);
    MUST(a->trace == b->trace);
    MUST(a->used == b->used && a->in_body == b->in_body);
}

static void cut_in_two(const struct reader *whole, size_t size, size_t cut)
{
    struct reader reader = {.data = whole->data};
    feed(&reader, cut);
    feed(&reader, size);
    same(&reader, whole);
}

static void cut_to_bytes(const struct reader *whole, size_t size)
{
    struct reader reader = {.data = whole->data};
    for (size_t i = 0; i <= size; i++)
        feed(&reader, i);
    same(&reader, whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader whole = {.data = data};
    feed(&whole, size);
    MUST(whole.end == 0 || whole.end == 400 || whole.end == 413 || whole.end == 414 || whole.end == 431 ||
         whole.end == 501 || whole.end == 505);
    size_t step = size <= SMALL ? 1 : size / 16;
    for (size_t cut = 0; cut <= size; cut += step)
        cut_in_two(&whole, size, cut);
    if (size <= SMALL)
        cut_to_bytes(&whole, size);
    return 0;
}
