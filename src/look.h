/* SPDX-License-Identifier: MIT */
/* What the goroutines that threads are running are doing right now (look.c). */
#ifndef W_LOOK_H
#define W_LOOK_H

#include "frames.h"
#include "weft_internal.h"

enum w_seen {
    W_SEEN_NOTHING,  /* the thread has ended meanwhile, or does something else */
    W_SEEN_STACK,    /* the backtrace is there */
    W_SEEN_NO_STACK, /* it was found, but the stack is not its goroutine's, or cannot be had */
    W_SEEN_SILENT,   /* it runs, and did not answer */
};

/* One M with its goroutine. */
struct w_sight {
    struct w_g *g; /* that it ran when it was looked at */
    uint64_t id;   /* of g */
    pid_t tid;
    uint32_t m;
    int32_t p; /* -1: none */
    enum w_seen seen;
    struct w_trace trace;
};

struct w_sights {
    struct w_sight *sight;
    uint32_t n, room;
};

int w_look_at_ms(struct w_sights *s, struct w_rows *rows); /* -ENOMEM */
void w_sights_free(struct w_sights *s);
const struct w_sight *w_sight_of(const struct w_sights *s, const struct w_g *g, uint64_t id); /* NULL: nothing */

/* In the handler of SIGURG: was it sent by us? Then that was all. */
bool w_looked_at(const siginfo_t *info, const ucontext_t *context);

#endif
