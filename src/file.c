/* SPDX-License-Identifier: MIT */
/*
 * Files, which epoll does not take because they are always ready, and which make the thread wait for the disk all the same.
 *
 *   pread    what is in the page cache is read at once (RWF_NOWAIT); the rest through io_uring (uring.c)
 *   read     by the thread, in a blocking region: what moves the descriptor's position must be one call
 *   write    into the page cache, which rarely waits: by the thread, in a blocking region (28 ns); O_DIRECT: io_uring
 *   fsync    io_uring
 *   open     by the thread, in a blocking region
 *
 * Without io_uring everything that may wait is done by the thread in a blocking region.
 */
#include "file.h"
#include "netpoll.h"
#include "sys_io.h"

static long do_here(const struct w_file_call *c)
{
    long r;
    do {
        if (c->op == W_FILE_READ)
            r = w_sys_read(c->fd, c->iov, c->count, c->offset);
        else if (c->op == W_FILE_WRITE)
            r = w_sys_write(c->fd, c->iov, c->count, c->offset);
        else
            r = w_sys_fsync(c->fd);
    } while (r == -EINTR);
    return r;
}

long w_file_block(struct w_g *g, const struct w_file_call *call)
{
    if (g->flags & W_G_FOREIGN)
        return do_here(call);
    w_step_out(w_m());
    weft_block_enter();
    long r = do_here(call);
    weft_block_leave();
    w_enter();
    return r;
}

long w_file_do(struct w_g *g, const struct w_file_call *call)
{
    long r;
    do
        r = w_uring_do(g, call);
    while (r == -EINTR || r == -ECANCELED); /* the thread that submitted it has ended */
    bool otherwise =
        r == -ENOSYS || r == -EAGAIN || r == -EFAULT; /* the last two: it was opened with O_NONBLOCK; the buffer is
                                                                       bad, or the thread that submitted it has ended */
    return otherwise ? w_file_block(g, call) : r;
}

/* What may be waited for is non-blocking, as all that we return; of a file it would keep the ring from waiting for us. */
static void set_mode(int fd)
{
    struct stat st;
    if (w_sys_stat(fd, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISBLK(st.st_mode) && !S_ISDIR(st.st_mode))
        w_sys_set_nonblocking(fd);
}

int weft_open(const char *path, int flags, mode_t mode)
{
    long fd;
    weft_block_enter();
    do
        fd = w_sys_open(path, flags | O_CLOEXEC | O_LARGEFILE, mode);
    while (fd == -EINTR);
    weft_block_leave();
    if (fd >= 0) {
        set_mode((int)fd);
        struct w_g *g = w_call_begin();
        w_fd_fresh((int)fd);
        w_call_end(g);
    }
    return (int)fd;
}

int weft_fsync(int fd)
{
    struct w_use u;
    struct w_g *g = w_call_begin();
    long r = w_use_begin(&u, fd);
    if (r == 0)
        r = w_file_do(g, &(struct w_file_call){.op = W_FILE_FSYNC, .fd = fd});
    w_use_end(&u);
    w_call_end(g);
    return (int)r;
}
