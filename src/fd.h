/* SPDX-License-Identifier: MIT */
/* Descriptor numbers: what is known of each in this run, and who is using it; fd.c tells how they are kept apart in time. */
#ifndef W_FD_H
#define W_FD_H

#include "waiter.h"

enum w_side { W_SIDE_READ, W_SIDE_WRITE };

/* What is believed of a descriptor number. It may be wrong: who closes a descriptor behind our back gives its number to
 * another. A wrong hint costs time, and nothing else (io.c). */
enum w_hint {
    W_HINT_NONE,
    W_HINT_SOCKET, /* of another kind than TCP */
    W_HINT_TCP,
    W_HINT_STREAM, /* no socket, no file: a pipe, an eventfd */
    W_HINT_PLAIN,  /* the kernel has no way to read or write it without waiting: a tty */
    W_HINT_FILE,
    W_HINT_DIRECT, /* a file opened with O_DIRECT */
};

/* One side of a descriptor. */
struct w_fd_side {
    struct w_waitq q;       /* who waits for a turn; its guard guards `epoch` as well */
    _Atomic uint32_t epoch; /* events so far; written under guard */
    _Atomic uint32_t empty; /* the epoch, plus 1, in which a read last came to the end of what there was; readers */
};

struct w_fd {
    _Alignas(W_CACHE_LINE) _Atomic uint64_t use; /* life number, closing, in the kernel, calls under way (fd.c) */
    struct w_fd_side read;
    struct w_waitq watchers; /* who waits for any change */

    _Alignas(W_CACHE_LINE) struct w_fd_side write;
    _Atomic uint8_t hint;  /* enum w_hint */
    _Atomic uint8_t asked; /* sides that epoll was asked to tell of, in this life, a bit each; written under asking */
    _Atomic bool shut;     /* the peer has closed, or an error or urgent data came: a short read tells nothing */
    _Atomic bool watched;  /* somebody has watched it in this life */
    _Atomic bool doubted;  /* its registration is to be proved; written under the lock of the doubts */
    struct w_spin asking;
};
_Static_assert(sizeof(struct w_fd) == 2 * W_CACHE_LINE, "a connection costs this, beside its goroutine");

/* A call that uses a descriptor: while it is under way, and does not wait, the number is not given to another. */
struct w_use {
    struct w_fd *d;
    int fd;
    uint32_t life;
};

/* -EBADF, -ENOMEM; -EMFILE: beyond what we keep account of; -EPERM: no run is up. */
int w_use_begin(struct w_use *u, int fd);
int w_use_try_begin(struct w_use *u, int fd); /* by whoever cannot wait: -EBADF too if it is just being closed */
void w_use_end(struct w_use *u);
int w_use_resume(struct w_use *u); /* after an end; -EBADF: the number was closed meanwhile */
bool w_use_current(const struct w_use *u);

/* io.c: a descriptor that is used again and again by one who may not hear that another closed it. It is known by its life:
 * -EBADF from then on, whoever has the number. */
int w_fd_know(struct w_use *known, int fd);
ssize_t w_read_known(const struct w_use *known, void *buffer, size_t size);
int w_accept_known(const struct w_use *known);

bool w_fd_in_use(struct w_fd *d); /* are calls under way? */

/* The kernel has just given us this number: whatever was known of it is about another descriptor. */
void w_fd_fresh(int fd);
void w_fd_mistaken(struct w_fd *d);

struct w_fd *w_fd_find(int fd); /* of a number that was used in this run */
uint32_t w_fd_life(struct w_fd *d);
void w_fds_done(void);

static inline struct w_fd_side *w_fd_side(struct w_fd *d, enum w_side side)
{
    return side == W_SIDE_READ ? &d->read : &d->write;
}

#endif
