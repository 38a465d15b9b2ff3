/* SPDX-License-Identifier: MIT */
/* What the files of the live picture's server share. */
#ifndef W_WEB_H
#define W_WEB_H

#include "request.h"
#include "weft_internal.h"

enum { W_TOKEN_MIN = 8, W_TOKEN_MAX = 64 };

/* What a guest is at: who makes room for others comes first. */
enum w_guest_state {
    W_GUEST_IDLE,     /* it has its answer, and the next request has not begun; or it is on its way out */
    W_GUEST_ASKS,     /* it has just come, or a part of its request has */
    W_GUEST_ANSWERED, /* its answer is being made or sent: it makes room for nobody */
};

/* A connection. */
struct w_guest {
    int fd;                      /* -1: the place is free; server.c's lock, constant for the guest itself */
    enum w_guest_state state;    /* by itself; server.c's lock */
    bool shown_out;              /* and on its way; server.c's lock */
    _Atomic int64_t deadline;    /* when it is shown the door; written by itself */
    int memory, timer;           /* what an answer needs: descriptors, or -1; by itself, and at the end of the run */
    char token[W_TOKEN_MAX + 1]; /* that its listener asks for, "": none; constant */
};

/* It has so much time for its next step. */
static inline void w_guest_may_take(struct w_guest *guest, int64_t ns)
{
    st_relaxed(&guest->deadline, ns == WEFT_NEVER ? WEFT_NEVER : w_now() + ns); /* relaxed: looked at once a second */
}

/* Answers a request, or refuses it with a status. false: the connection is over. */
bool w_answer(struct w_guest *guest, const struct w_http *r);
void w_refuse(struct w_guest *guest, const struct w_http *r, int status);

#endif
