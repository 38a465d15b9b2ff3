/* SPDX-License-Identifier: MIT */
/* Reads execution traces line by line, as trace_json.c writes them, and checks what must be true of each. */
#ifndef TRACEFILE_H
#define TRACEFILE_H

#include "runs.h"
#include <fcntl.h>

struct trace_event {
    char ph, name[80], end[16], why[40];
    long pid, tid, g, by, id, from, lost;
    int64_t at, length; /* ns */
};

/* A pipe of one page; path is its other end, which nobody reads. */
struct unread {
    int ends[2];
    char path[64];
};

static inline struct unread unread_pipe(void)
{
    struct unread u;
    CHECK_EQ(pipe2(u.ends, O_NONBLOCK | O_CLOEXEC), 0);
    fcntl(u.ends[1], F_SETPIPE_SZ, 4096);
    snprintf(u.path, sizeof u.path, "/proc/self/fd/%d", u.ends[1]);
    return u;
}

static inline void fill(const struct unread *u)
{
    static const char zeros[1024];
    for (size_t n = sizeof zeros; n > 0; n /= 2) /* a part that does not fit is not taken */
        while (write(u->ends[1], zeros, n) > 0)
            ;
}

static inline void close_unread(const struct unread *u)
{
    close(u->ends[0]);
    close(u->ends[1]);
}

struct trace_file {
    struct trace_event *event;
    int n;
    bool complete; /* it has its end */
};

static inline const char *after(const char *line, const char *key)
{
    const char *at = strstr(line, key);
    return at != NULL ? at + strlen(key) : NULL;
}

static inline long number_in(const char *line, const char *key)
{
    const char *at = after(line, key);
    return at != NULL ? strtol(at, NULL, 10) : -1;
}

/* Microseconds with three digits behind the point. */
static inline int64_t time_in(const char *line, const char *key)
{
    const char *at = after(line, key);
    char *point = NULL;
    int64_t us = at != NULL ? strtoll(at, &point, 10) : 0;
    return at != NULL ? us * 1000 + strtol(point + 1, NULL, 10) : -1;
}

static inline void text_in(const char *line, const char *key, char *out, size_t size)
{
    const char *at = after(line, key), *end = at != NULL ? strchr(at, '"') : NULL;
    size_t n = end != NULL ? (size_t)(end - at) : 0;
    snprintf(out, size, "%.*s", (int)n, at != NULL ? at : "");
}

static inline struct trace_event parse_event(const char *line)
{
    struct trace_event e = {.ph = line[7], .pid = number_in(line, "\"pid\":"), .tid = number_in(line, "\"tid\":")};
    e.at = time_in(line, "\"ts\":");
    e.length = time_in(line, "\"dur\":");
    e.g = number_in(line, "\"g\":");
    e.by = number_in(line, "\"by\":");
    e.id = number_in(line, "\"id\":");
    e.from = number_in(line, "\"from\":");
    e.lost = number_in(line, "\"lost\":");
    text_in(line, "\"name\":\"", e.name, sizeof e.name);
    text_in(line, "\"end\":\"", e.end, sizeof e.end);
    text_in(line, "\"why\":\"", e.why, sizeof e.why);
    return e;
}

static inline struct trace_file read_trace(const char *path)
{
    struct trace_file t = {0};
    char line[2048];
    int room = 0;
    FILE *f = fopen(path, "re");
    CHECK(f != NULL && fgets(line, sizeof line, f) != NULL && strcmp(line, "[\n") == 0);
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        if (t.n == room)
            t.event = realloc(t.event, (size_t)(room = 2 * room + 64) * sizeof *t.event);
        if (strncmp(line, "{\"ph\":\"", 7) == 0)
            t.event[t.n++] = parse_event(line);
        t.complete = strcmp(line, "]\n") == 0;
    }
    if (f != NULL)
        fclose(f);
    return t;
}

static inline void free_trace(struct trace_file *t)
{
    free(t->event);
}

static inline int by_track(const void *a, const void *b)
{
    const struct trace_event *x = a, *y = b;
    if (x->pid != y->pid || x->tid != y->tid)
        return x->pid != y->pid ? (x->pid > y->pid) - (x->pid < y->pid) : (x->tid > y->tid) - (x->tid < y->tid);
    return (x->at > y->at) - (x->at < y->at);
}

/* Slices of a track do not overlap. Sorts the events. */
static inline void check_slices(struct trace_file *t)
{
    enum { SKEW = 100 }; /* ns between the counters of two cores */
    const struct trace_event *last = NULL;
    if (t->n > 0)
        qsort(t->event, (size_t)t->n, sizeof *t->event, by_track);
    for (int i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        if (e->ph != 'X')
            continue;
        CHECK(e->at >= 0 && e->length >= 0);
        if (last != NULL && last->pid == e->pid && last->tid == e->tid && last->at + last->length > e->at + SKEW)
            check_fail(__FILE__, __LINE__, "\"%s\" overlaps \"%s\" by %ld ns", last->name, e->name,
                       (long)(last->at + last->length - e->at));
        last = e;
    }
}

static inline int by_id(const void *a, const void *b)
{
    const struct trace_event *x = a, *y = b;
    if (x->id != y->id)
        return (x->id > y->id) - (x->id < y->id);
    return (y->ph > x->ph) - (y->ph < x->ph); /* s before f */
}

/* Every arrow has both ends, and none points back. Sorts the events. */
static inline int check_arrows(struct trace_file *t)
{
    int n = 0;
    if (t->n > 0)
        qsort(t->event, (size_t)t->n, sizeof *t->event, by_id);
    for (int i = 0; i < t->n; i++) {
        const struct trace_event *e = &t->event[i];
        if (e->ph != 's' && e->ph != 'f')
            continue;
        bool pair = e->ph == 's' && i + 1 < t->n && e[1].ph == 'f' && e[1].id == e->id;
        CHECK(pair);
        if (!pair)
            return n;
        CHECK(e[1].at >= e->at);
        n++, i++;
    }
    return n;
}

static inline int count_events(const struct trace_file *t, char ph, const char *name)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->event[i].ph == ph && (name == NULL || strcmp(t->event[i].name, name) == 0);
    return n;
}

static inline int64_t busy_time(const struct trace_file *t)
{
    int64_t ns = 0;
    for (int i = 0; i < t->n; i++)
        ns += t->event[i].ph == 'X' && t->event[i].pid == 1 ? t->event[i].length : 0;
    return ns;
}

static inline int count_ends(const struct trace_file *t, const char *end)
{
    int n = 0;
    for (int i = 0; i < t->n; i++)
        n += t->event[i].ph == 'X' && strcmp(t->event[i].end, end) == 0;
    return n;
}

/* A path in path, for a file that is there and empty. */
static inline void temporary(char *path, const char *end)
{
    sprintf(path, "/tmp/weft-test-XXXXXX%s", end);
    close(mkstemps(path, (int)strlen(end)));
}

#endif
