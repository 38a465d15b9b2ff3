/* SPDX-License-Identifier: MIT */
/* What the files of the live picture's server share. */
#ifndef W_WEB_H
#define W_WEB_H

#include "request.h"
#include "weft_internal.h"

enum { W_TOKEN_MIN = 8, W_TOKEN_MAX = 64 };

/* A connection. */
struct w_guest {
    int fd;                   /* -1: the place is free; server.c's lock, constant for the guest itself */
    _Atomic int64_t deadline; /* when it is shown the door; written by itself */
    bool shown_out;           /* and on its way; server.c's lock */
    int memory, timer;        /* what an answer needs: descriptors, or -1; by itself, and at the end of the run */
};

/* It has so much time for its next step. */
static inline void w_guest_may_take(struct w_guest *guest, int64_t ns)
{
    st_relaxed(&guest->deadline, ns == WEFT_NEVER ? WEFT_NEVER : w_now() + ns); /* relaxed: looked at once a second */
}

/* Answers a request, or refuses it with a status. false: the connection is over. */
bool w_answer(struct w_guest *guest, const struct w_http *r, const char *token);
void w_refuse(struct w_guest *guest, const struct w_http *r, int status);

#endif
