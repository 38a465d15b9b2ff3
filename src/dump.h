/* SPDX-License-Identifier: MIT */
/* Dumps, as the rest of the runtime asks for them (dump.c), and how they are written (dump_out.c). */
#ifndef W_DUMP_H
#define W_DUMP_H

#include "census.h"

/* What is written goes through here, in large pieces. */
struct w_out {
    int fd;
    int err;      /* 0, or the first that went wrong: nothing is written after it */
    bool quick;   /* names only as far as they can be had without a lock, memory or a file */
    bool hurried; /* gives up if it would have to wait when the run ends */
    size_t n;
    char text[4096];
};

void w_out_say(struct w_out *out, const char *fmt, ...) W_PRINTF(2, 3);
void w_out_flush(struct w_out *out);
void w_dump_text(struct w_out *out, const struct w_census *c);
void w_dump_as_json(struct w_out *out, const struct w_census *c);

/* Waits until fn(arg) has returned, in a thread with a large stack and no signals; false: there is none to be had. */
bool w_call_in_thread(void *(*fn)(void *), void *arg);

/* weft_dump_json into a descriptor that nobody else writes to: it does not wait for those who are writing theirs. */
int w_dump_json_apart(int fd);

/* For whoever ends the process, or has seen to it that nothing is changed meanwhile. quick: in a signal handler, at any time. */
int w_dump_here(int fd, bool quick);

#endif
