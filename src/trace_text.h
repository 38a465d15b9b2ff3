/* SPDX-License-Identifier: MIT */
/* The text of traces: a buffer before a descriptor, and the lines of the trace event format. Nothing allocates, so a signal handler may
 * do it. */
#ifndef W_TRACE_TEXT_H
#define W_TRACE_TEXT_H

#include "weft_internal.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { W_TEXT_BUFFER = 64 << 10, W_TEXT_LINE = 1024 /* is longer than any */ };

struct w_text {
    int fd;
    int error;             /* the first, negative */
    bool (*hurried)(void); /* deliver.c */
    size_t used;
    char buffer[W_TEXT_BUFFER];
};

/* ---- text --------------------------------------------------------------------------------------------------------- */

static inline void flush(struct w_text *o)
{
    if (o->error == 0)
        o->error = w_deliver(o->fd, o->buffer, o->used, o->hurried);
    o->used = 0;
}

static inline void text(struct w_text *o, const char *s)
{
    size_t n = strlen(s);
    memcpy(o->buffer + o->used, s, n);
    o->used += n;
}

static inline void number(struct w_text *o, uint64_t n)
{
    char digits[20];
    int i = 20;
    do
        digits[--i] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    memcpy(o->buffer + o->used, digits + i, (size_t)(20 - i));
    o->used += (size_t)(20 - i);
}

/* Microseconds, which the format counts in. */
static inline void micros(struct w_text *o, int64_t ns)
{
    if (ns < 0) {
        text(o, "-");
        ns = -ns;
    }
    number(o, (uint64_t)ns / 1000);
    char rest[] = {'.', (char)('0' + ns / 100 % 10), (char)('0' + ns / 10 % 10), (char)('0' + ns % 10), '\0'};
    text(o, rest);
}

/* How many bytes the character at s has; 0: it is none in UTF-8. */
static inline int character(const unsigned char *s)
{
    int n = s[0] < 0x80 ? 1 : s[0] >= 0xc2 && s[0] < 0xe0 ? 2 : s[0] >= 0xe0 && s[0] < 0xf0 ? 3 : 4;
    if (n == 4 && (s[0] < 0xf0 || s[0] > 0xf4))
        return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

/* What a program calls its goroutines may be anything. */
static inline void quoted(struct w_text *o, const char *s)
{
    for (int n; *s != '\0'; s += n) {
        n = character((const unsigned char *)s);
        bool plain = n > 0 && (unsigned char)*s >= ' ' && *s != 0x7f;
        if (*s == '"' || *s == '\\')
            text(o, "\\");
        if (plain)
            memcpy(o->buffer + o->used, s, (size_t)n);
        else
            o->buffer[o->used] = '?';
        n = plain ? n : 1;
        o->used += (size_t)n;
    }
}

/* ---- events as lines ---------------------------------------------------------------------------------------------- */

/* The line is left open for its args. */
static inline void begin_line(struct w_text *o, const char *ph, uint32_t pid, uint64_t tid, int64_t ns)
{
    if (o->used + W_TEXT_LINE > W_TEXT_BUFFER)
        flush(o);
    text(o, "{\"ph\":\"");
    text(o, ph);
    text(o, "\",\"pid\":");
    number(o, pid);
    text(o, ",\"tid\":");
    number(o, tid);
    text(o, ",\"ts\":");
    micros(o, ns);
}

static inline void named(struct w_text *o, const char *name)
{
    text(o, ",\"name\":\"");
    quoted(o, name);
    text(o, "\"");
}

static inline void end_line(struct w_text *o)
{
    text(o, "},\n");
}

static inline void number_arg(struct w_text *o, const char *before, uint64_t n)
{
    text(o, before);
    number(o, n);
}

#endif
