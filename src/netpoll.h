/* SPDX-License-Identifier: MIT */
/* Waiting for descriptors as the rest of the runtime sees it; netpoll.c tells how word of their readiness comes. */
#ifndef W_NETPOLL_H
#define W_NETPOLL_H

#include "fd.h"

/* The events of a descriptor so far. */
struct w_epochs {
    uint32_t side[2];
};

/* Before a try: what comes after it has another epoch. */
struct w_epochs w_use_epochs(const struct w_use *u);

/* After a try that was in vain: waits until the side may be ready. 0: try again. 1: it is no descriptor that epoll takes.
 * -EBADF: it was closed. */
int w_use_wait(struct w_use *u, struct w_g *g, enum w_side side, const struct w_epochs *before);

/* Likewise, for any change on the sides given, a bit each. */
int w_use_watch(struct w_use *u, struct w_g *g, uint8_t sides, const struct w_epochs *before);
#define W_SIDE_BIT(side) ((uint8_t)(1 << (side)))

/* The caller's turn on that side is over, and there may be something left for the next who waits there. */
void w_use_pass(struct w_use *u, enum w_side side);

void w_poll_prepare(void); /* descriptors are used in this run */
void w_poll_end_waits(struct w_fd *d, int result);
void w_poll_dismiss(int fd); /* takes it out of epoll */

/* Makes those runnable whose descriptors or files are ready, without waiting. false: there were none. */
bool w_poll(void);

/* Sleeps until something is ready, or ns have passed (negative: without limit), or it is interrupted. */
void w_poll_sleep(int64_t ns, struct w_claimed *c);
void w_poll_interrupt(void);
void w_poll_awake(void);  /* it was interrupted */
void w_poll_settle(void); /* before an M goes to sleep: prove what is in doubt, rather than be woken for that */

bool w_poll_used(void);         /* has this run anything to poll for? */
bool w_poll_unattended(void);   /* it has, and no M sleeps in it */
bool w_poll_due(int64_t since); /* nobody has polled for so long, or there is something else for w_poll to do */
int64_t w_poll_doubt_at(void);  /* when w_poll has registrations to prove; WEFT_NEVER: there are none */
bool w_poll_waited_for(void);   /* does a goroutine wait for a descriptor or a file? Exact while no P is held */
bool w_poll_wanted(void);       /* does anybody, foreign threads too? */
void w_poll_count(int change);  /* of those who do: the caller */

int w_poll_join(int fd); /* an internal descriptor: its events wake whoever sleeps in w_poll_sleep */
void w_poll_done(void);

#endif
