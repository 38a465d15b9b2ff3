/* SPDX-License-Identifier: MIT */
/* A census as text for people, and as JSON for programs. */
#include "dump.h"
#include "rings.h"
#include "symbol.h"
#include "sys_io.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 8 }; /* of a group, by their numbers */

/* ---- writing ---------------------------------------------------------------------------------------------------- */

/* What is ready takes a piece of this size, or says what is wrong with it. */
static bool may_write(const struct w_out *out)
{
    while (out->hurried && out->fd >= 0 && !w_sys_takes(out->fd, 50 * WEFT_MSEC))
        if (ld_relaxed(&w_sched.stopping))
            return false;
    return true;
}

void w_out_flush(struct w_out *out)
{
    const char *at = out->text;
    while (out->n > 0 && out->err == 0) {
        long r = may_write(out) ? W_RESULT(syscall(SYS_write, out->fd, at, out->n)) : -ECANCELED;
        if (r > 0) {
            at += r;
            out->n -= (size_t)r;
        } else if (r != -EINTR && !(r == -EAGAIN && w_sys_takes(out->fd, WEFT_SEC))) {
            out->err = r < 0 ? (int)r : -EIO;
        }
    }
    out->n = 0;
}

void w_out_say(struct w_out *out, const char *fmt, ...)
{
    for (int i = 0; i < 2; i++) {
        va_list ap;
        size_t room = sizeof out->text - out->n;
        va_start(ap, fmt);
        int k = vsnprintf(out->text + out->n, room, fmt, ap);
        va_end(ap);
        if (k >= 0 && (size_t)k < room) {
            out->n += (size_t)k;
            return;
        }
        if (out->n == 0) { /* longer than all the room there is: its begin */
            out->n = k < 0 ? 0 : room - 1;
            return;
        }
        w_out_flush(out);
    }
}

static void look_up(const struct w_out *out, uintptr_t pc, struct w_symbol *symbol)
{
    if (out->quick)
        w_symbol_quick(pc, symbol);
    else
        w_symbol_of(pc, symbol);
}

/* ---- text ------------------------------------------------------------------------------------------------------- */

/* site: the address that tells which line it is. */
static void print_place(struct w_out *out, uintptr_t pc, uintptr_t site)
{
    struct w_symbol s;
    look_up(out, site, &s);
    w_out_say(out, "0x%" PRIxPTR, pc);
    if (s.name != NULL)
        w_out_say(out, " %s+0x%" PRIxPTR " (%s)", s.name, s.offset + (pc - site), s.object != NULL ? s.object : "?");
    else if (s.object != NULL)
        w_out_say(out, " (%s+0x%" PRIxPTR ")", s.object, s.offset + (pc - site));
    if (s.file != NULL && s.line > 0)
        w_out_say(out, " %s:%d", s.file, s.line);
    w_out_say(out, "\n");
}

static void print_one(struct w_out *out, const struct w_one *one)
{
    w_out_say(out, " %" PRIu64, one->id);
    if (one->name[0] == '\0')
        return;
    w_out_say(out, " \"");
    for (const char *at = one->name; *at != '\0'; at++)
        w_out_say(out, "%c", (unsigned char)*at < ' ' || *at == 127 ? '?' : *at); /* it may lead to a terminal */
    w_out_say(out, "\"");
}

static void print_who(struct w_out *out, const struct w_group *g)
{
    uint64_t shown = g->count <= W_NAMED ? g->count : SHOWN;
    if (g->count == 1)
        w_out_say(out, "goroutine");
    else
        w_out_say(out, "%" PRIu64 " goroutines", g->count);
    for (uint64_t i = 0; i < shown; i++) {
        w_out_say(out, i > 0 ? "," : "");
        print_one(out, &g->one[i]);
    }
    if (shown < g->count)
        w_out_say(out, " and %" PRIu64 " more", g->count - shown);
}

/* In the unit that fits. */
static void print_span(struct w_out *out, const struct w_span_ns *span)
{
    bool seconds = span->hi >= 10 * WEFT_SEC;
    int64_t unit = seconds ? WEFT_SEC : WEFT_MSEC;
    w_out_say(out, "%" PRId64, span->lo / unit);
    if (span->hi / unit != span->lo / unit)
        w_out_say(out, " to %" PRId64, span->hi / unit);
    w_out_say(out, seconds ? " s" : " ms");
}

static void print_object(struct w_out *out, const struct w_group *g)
{
    if (g->reason >= W_REASON_READ)
        w_out_say(out, " %ld", (long)(intptr_t)g->object);
    else if (g->reason != W_REASON_SLEEP && g->reason != W_REASON_NIL)
        w_out_say(out, " %p", g->object);
    if (g->many_objects && g->reason != W_REASON_SLEEP)
        w_out_say(out, " and others");
}

static void print_thread(struct w_out *out, const struct w_group *g)
{
    if (g->count > 1 || g->tid == 0)
        return;
    if (g->p >= 0)
        w_out_say(out, ", on P%d", (int)g->p);
    w_out_say(out, ", M%u, thread %d", g->m, (int)g->tid);
}

static void print_state(struct w_out *out, const struct w_group *g)
{
    static const char *const CLASSES[] = {"low priority", "", "high priority"};
    w_out_say(out, " [%s", w_state_name(g->state));
    if (g->state == W_WAITING) {
        w_out_say(out, ": %s", w_reason_name(g->reason));
        print_object(out, g);
    }
    if (g->since.lo <= g->since.hi) {
        w_out_say(out, ", ");
        print_span(out, &g->since);
    }
    if (g->left.lo <= g->left.hi) {
        w_out_say(out, ", ");
        print_span(out, &g->left);
        w_out_say(out, " to go");
    }
    if (g->seen == W_SEEN_SILENT && g->state == W_RUNNING)
        w_out_say(out, ", no answer");
    print_thread(out, g);
    if (g->priority != WEFT_NORMAL && g->priority >= WEFT_LOW && g->priority <= WEFT_HIGH)
        w_out_say(out, ", %s", CLASSES[g->priority - WEFT_LOW]);
    if (g->lent)
        w_out_say(out, ", lent a higher one");
    if (g->over.lo <= g->over.hi) {
        w_out_say(out, ", goes on though its scope was cancelled ");
        print_span(out, &g->over);
        w_out_say(out, " ago");
    }
    w_out_say(out, "]\n");
}

static const char *why_no_frames(const struct w_group *g)
{
    if (g->moved)
        return "no backtrace: it did not stand still";
    if (g->state == W_RUNNABLE)
        return "it has not run yet";
    if (g->state != W_RUNNING && g->state != W_BLOCKED)
        return NULL;
    return g->seen == W_SEEN_NOTHING ? "no backtrace: it began to run during the dump"
                                     : "no backtrace: its thread could not be looked at";
}

static void print_group(struct w_out *out, const struct w_group *g)
{
    print_who(out, g);
    print_state(out, g);
    w_out_say(out, "    entry ");
    print_place(out, (uintptr_t)g->entry, (uintptr_t)g->entry);
    if (g->started_at != NULL) {
        w_out_say(out, "    started at ");
        print_place(out, (uintptr_t)g->started_at, (uintptr_t)g->started_at - 1);
    }
    for (uint32_t i = 0; i < g->trace.n; i++) {
        w_out_say(out, "    #%-2u ", i);
        print_place(out, g->trace.pc[i], w_trace_site(&g->trace, i));
    }
    if (g->trace.n == W_TRACE_MAX)
        w_out_say(out, "    ...\n");
    if (g->trace.n == 0 && why_no_frames(g) != NULL)
        w_out_say(out, "    (%s)\n", why_no_frames(g));
    w_out_say(out, "\n");
}

void w_dump_text(struct w_out *out, const struct w_census *c)
{
    if (!out->quick)
        w_rings_print(out);
    for (uint32_t i = 0; i < c->n && out->err == 0; i++)
        print_group(out, &c->group[i]);
    if (c->others > 0)
        w_out_say(out, "and %" PRIu64 " more goroutines, in more groups than are told apart\n", c->others);
}

/* ---- JSON ------------------------------------------------------------------------------------------------------- */

/* How many bytes the character at `at` has in UTF-8; 0: it is none. */
static unsigned utf8_at(const unsigned char *at)
{
    unsigned n = at[0] < 0x80                    ? 1
                 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2
                 : (at[0] & 0xf0) == 0xe0        ? 3
                 : at[0] >= 0xf0 && at[0] < 0xf5 ? 4
                                                 : 0;
    for (unsigned i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

static void put_string(struct w_out *out, const char *text)
{
    if (text == NULL || text[0] == '\0') {
        w_out_say(out, "null");
        return;
    }
    w_out_say(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
        unsigned n = utf8_at(at);
        if (*at == '"' || *at == '\\')
            w_out_say(out, "\\%c", *at);
        else if (n == 0 || *at < 32)
            w_out_say(out, "\\u%04x", n == 0 ? 0xfffdu : *at);
        else
            w_out_say(out, "%.*s", (int)n, (const char *)at);
        at += n > 0 ? n : 1;
    }
    w_out_say(out, "\"");
}

static void put_place(struct w_out *out, uintptr_t pc, uintptr_t site)
{
    struct w_symbol s;
    look_up(out, site, &s);
    w_out_say(out, "{\"pc\":\"0x%" PRIxPTR "\",\"symbol\":", pc);
    put_string(out, s.name);
    w_out_say(out, ",\"object\":");
    put_string(out, s.object);
    w_out_say(out, ",\"file\":");
    put_string(out, s.file);
    w_out_say(out, ",\"line\":%d}", s.line);
}

/* One word where a program wants to show one: name, else file and line, else the address. */
static void put_short_place(struct w_out *out, uintptr_t pc, uintptr_t site, bool line)
{
    struct w_symbol s;
    char text[512];
    look_up(out, site, &s);
    if (line && s.file != NULL && s.line > 0)
        snprintf(text, sizeof text, "%s:%d", s.file, s.line);
    else if (s.name != NULL)
        snprintf(text, sizeof text, "%s", s.name);
    else
        snprintf(text, sizeof text, "0x%" PRIxPTR, pc);
    put_string(out, text);
}

static void put_object(struct w_out *out, const struct w_group *g)
{
    char text[40];
    if (g->state != W_WAITING || g->many_objects || g->reason == W_REASON_NIL || g->reason == W_REASON_SLEEP)
        text[0] = '\0';
    else if (g->reason >= W_REASON_READ)
        snprintf(text, sizeof text, "%ld", (long)(intptr_t)g->object);
    else
        snprintf(text, sizeof text, "%p", g->object);
    put_string(out, text);
}

static void put_span(struct w_out *out, const char *name, const struct w_span_ns *span)
{
    if (span->lo <= span->hi)
        w_out_say(out, ",\"%s_min\":%" PRId64 ",\"%s_max\":%" PRId64, name, span->lo, name, span->hi);
    else
        w_out_say(out, ",\"%s_min\":null,\"%s_max\":null", name, name);
}

static void put_thread(struct w_out *out, const struct w_group *g)
{
    if (g->tid == 0 || g->count > 1)
        w_out_say(out, ",\"p\":null,\"m\":null,\"thread\":null");
    else if (g->p < 0)
        w_out_say(out, ",\"p\":null,\"m\":%u,\"thread\":%d", g->m, (int)g->tid);
    else
        w_out_say(out, ",\"p\":%d,\"m\":%u,\"thread\":%d", (int)g->p, g->m, (int)g->tid);
}

static void put_group(struct w_out *out, const struct w_group *g)
{
    w_out_say(out, "{\"count\":%" PRIu64 ",\"ids\":[", g->count);
    for (uint64_t i = 0; i < g->count && i < W_NAMED; i++)
        w_out_say(out, i > 0 ? ",%" PRIu64 : "%" PRIu64, g->one[i].id);
    w_out_say(out, "],\"name\":");
    put_string(out, g->same_name ? g->one[0].name : NULL);
    w_out_say(out, ",\"state\":");
    put_string(out, w_state_name(g->state));
    w_out_say(out, ",\"reason\":");
    put_string(out, w_reason_name(g->reason));
    w_out_say(out, ",\"object\":");
    put_object(out, g);
    put_span(out, "since_ns", &g->since);
    w_out_say(out, ",\"priority\":%d", g->priority);
    put_thread(out, g);
    w_out_say(out, ",\"entry\":");
    put_short_place(out, (uintptr_t)g->entry, (uintptr_t)g->entry, false);
    w_out_say(out, ",\"started_at\":");
    if (g->started_at != NULL)
        put_short_place(out, (uintptr_t)g->started_at, (uintptr_t)g->started_at - 1, true);
    else
        w_out_say(out, "null");
    w_out_say(out, ",\"frames\":[");
    for (uint32_t i = 0; i < g->trace.n; i++) {
        w_out_say(out, i > 0 ? "," : "");
        put_place(out, g->trace.pc[i], w_trace_site(&g->trace, i));
    }
    w_out_say(out, "]}");
}

void w_dump_as_json(struct w_out *out, const struct w_census *c)
{
    w_out_say(out, "[");
    for (uint32_t i = 0; i < c->n && out->err == 0; i++) {
        w_out_say(out, i > 0 ? ",\n" : "");
        put_group(out, &c->group[i]);
    }
    w_out_say(out, "]\n");
}
