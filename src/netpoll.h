/* SPDX-License-Identifier: MIT */
/* Descriptors and their readiness as the rest of the runtime sees them; netpoll.c tells how they are kept. */
#ifndef W_NETPOLL_H
#define W_NETPOLL_H

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
    struct w_waitq q;       /* who waits; its guard guards the rest as well */
    _Atomic bool ready;     /* an event came when nobody waited; written under guard */
    _Atomic uint32_t epoch; /* events so far; written under guard */
    _Atomic uint32_t empty; /* the epoch, plus 1, in which a read last came to the end of what there was; readers */
};

/* What is known of a descriptor number, in this run. */
struct w_fd {
    _Alignas(W_CACHE_LINE) _Atomic uint64_t use; /* life number << 32 | closing << 31 | calls under way */
    struct w_fd_side read;
    _Atomic uint8_t hint;  /* enum w_hint */
    _Atomic uint8_t asked; /* sides that epoll was asked to tell of, in this life, a bit each; written under asking */
    _Atomic bool shut;     /* the peer has closed, or an error or urgent data came: a short read tells nothing */
    _Atomic bool doubted;  /* its registration is to be proved; written under the lock of the doubts */
    struct w_spin asking;
    _Alignas(W_CACHE_LINE) struct w_fd_side write;
    _Atomic uint32_t both; /* in the read side's queue, but waiting for either */
};

/* A call that uses a descriptor: while it is under way, and does not wait, the number is not given to another. */
struct w_use {
    struct w_fd *d;
    int fd;
    uint32_t life;
};

int w_use_begin(struct w_use *u,
                int fd); /* -EBADF, -EMFILE: beyond what we keep account of, -ENOMEM, -EPERM: no run is up */
void w_use_end(struct w_use *u);
int w_use_resume(struct w_use *u); /* after an end; -EBADF: the number was closed meanwhile */

/* For what somebody waits. */
enum w_want {
    W_WANT_TURN,   /* to be the next on that side */
    W_WANT_CHANGE, /* to be told of whatever happens on that side */
    W_WANT_BOTH,   /* likewise, on either side; the side given is that for reading */
};

/* Waits until the side may be ready. 0: try again. 1: it is no descriptor that epoll takes. -EBADF: it was closed. */
int w_use_wait(struct w_use *u, struct w_g *g, enum w_side side, enum w_want want);

/* The caller's turn on that side is over, and there may be something left for the next who waits there. */
void w_use_pass(struct w_use *u, enum w_side side);

/* The kernel has just given us this number: whatever was known of it is about another descriptor. */
void w_fd_fresh(int fd);

/* Makes those runnable whose descriptors or files are ready, without waiting. How many. */
uint32_t w_poll(void);

/* Sleeps until something is ready, or ns have passed (negative: without limit), or w_poll_interrupt. */
void w_poll_sleep(int64_t ns, struct w_claimed *c);
void w_poll_interrupt(void); /* it */
void w_poll_settle(void);    /* before an M goes to sleep: prove what is in doubt, rather than be woken for that */
void w_poll_awake(void);     /* it was interrupted */

int64_t w_poll_doubt_at(void);  /* when w_poll has registrations to prove; WEFT_NEVER: there are none */
bool w_poll_unattended(void);   /* it has, and no M sleeps in it */
bool w_poll_used(void);         /* has this run anything to poll for? */
bool w_poll_due(int64_t since); /* nobody has polled for so long */
bool w_poll_waited_for(void);   /* does a goroutine wait for a descriptor or a file? Exact while no P is held */
void w_poll_count(int change);  /* of the goroutines that do: the running one */

int w_poll_watch(int fd); /* an internal descriptor: its events wake whoever sleeps in w_poll_sleep */

void w_poll_done(void);

#endif
