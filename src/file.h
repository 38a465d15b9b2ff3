/* SPDX-License-Identifier: MIT */
/* Files: descriptors that are always ready and yet make a thread wait; file.c and uring.c tell how. */
#ifndef W_FILE_H
#define W_FILE_H

#include "waiter.h"
#include <sys/uio.h>

enum w_file_op { W_FILE_READ, W_FILE_WRITE, W_FILE_FSYNC };

struct w_file_call {
    enum w_file_op op;
    int fd;
    const struct iovec *iov;
    int count;
    off_t offset; /* -1: where the descriptor stands */
};

/* Does it, however long it takes; others run meanwhile. It is not cut: the kernel has the buffer. */
long w_file_do(struct w_g *g, const struct w_file_call *call);

/* Likewise, by the calling thread, whose P goes to somebody else if it takes long. */
long w_file_block(struct w_g *g, const struct w_file_call *call);

#ifdef W_URING
long w_uring_do(struct w_g *g, const struct w_file_call *call); /* -ENOSYS: there is no ring, or it is full */
void w_uring_submit(void);                                      /* what was put into the ring since the last time */
bool w_uring_pending(void);                                     /* is there any? */
uint32_t w_uring_complete(struct w_claimed *c);                 /* those whose calls have ended; how many */
void w_uring_done(void);
#else
static inline long w_uring_do(struct w_g *g, const struct w_file_call *call)
{
    (void)g, (void)call;
    return -ENOSYS;
}
static inline void w_uring_submit(void)
{
}
static inline bool w_uring_pending(void)
{
    return false;
}
static inline uint32_t w_uring_complete(struct w_claimed *c)
{
    (void)c;
    return 0;
}
static inline void w_uring_done(void)
{
}
#endif

#endif
