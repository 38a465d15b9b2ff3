/* SPDX-License-Identifier: MIT */
/*
 * Reading, writing, accepting, connecting: each call tries, and waits only if the kernel says "not now".
 *
 * A try never waits, whatever mode the descriptor is in, and needs not know what the descriptor is:
 *   socket   recv, send with MSG_DONTWAIT and MSG_NOSIGNAL
 *   pipe     preadv2, pwritev2 with RWF_NOWAIT, which sockets, pipes and files understand
 *   tty      the kernel has no such call: O_NONBLOCK is set, and it is read and written plainly
 *   file     RWF_NOWAIT; what is not in the page cache goes the file way (file.c)
 * What a number stands for is remembered as a hint. A wrong one is noticed: ENOTSOCK; a short read of what seems to be a
 * file; a file that must be waited for.
 *
 * A try is made outside the runtime (w_leave, w_enter around it), so that if it waits after all, for a page of the buffer that
 * is not in memory for instance, the monitor sees it and gives the P to somebody else.
 */
#include "file.h"
#include "netpoll.h"
#include "sys_io.h"

enum { IN_VAIN = 16 };

/* What is left of a vector of buffers. */
struct span {
    const struct iovec *iov;
    int count;
    size_t skip;       /* bytes of the first that are done with */
    struct iovec part; /* the rest of the first */
};

struct io {
    int fd;
    enum w_side side;
    struct span span;
    off_t offset;           /* -1: where the descriptor stands */
    struct msghdr *msg;     /* of recvmsg and sendmsg, else NULL */
    int flags;              /* of sockets */
    enum w_hint hint;       /* what we believe of it */
    struct w_epochs before; /* the last try */
    bool waited;            /* for its turn */
    bool known;             /* `use` says which life of the number is meant */
    struct w_use use;
    struct w_g *g;
};

/* ---- spans ------------------------------------------------------------------------------------------------------ */

static size_t span_size(const struct span *s)
{
    size_t n = 0;
    for (int i = 0; i < s->count; i++)
        n += s->iov[i].iov_len;
    return n - s->skip;
}

static void span_advance(struct span *s, size_t n)
{
    for (; s->count > 0 && n >= s->iov->iov_len - s->skip; s->iov++, s->count--) {
        n -= s->iov->iov_len - s->skip;
        s->skip = 0;
    }
    s->skip += n;
}

/* What the kernel is to be given: the rest of a buffer that is partly done with goes alone. */
static const struct iovec *span_next(struct span *s, int *count)
{
    *count = s->count;
    if (s->skip == 0)
        return s->iov;
    *count = 1;
    s->part = (struct iovec){(char *)s->iov->iov_base + s->skip, s->iov->iov_len - s->skip};
    return &s->part;
}

/* ---- what a descriptor is --------------------------------------------------------------------------------------- */

static long classify(struct io *io)
{
    struct stat st;
    long r = w_sys_stat(io->fd, &st);
    if (r < 0)
        return r;
    enum w_hint hint = W_HINT_STREAM;
    if (S_ISSOCK(st.st_mode))
        hint = w_sys_is_tcp(io->fd) ? W_HINT_TCP : W_HINT_SOCKET;
    else if (S_ISREG(st.st_mode) || S_ISBLK(st.st_mode) || S_ISDIR(st.st_mode))
        hint = w_sys_flags(io->fd) & O_DIRECT ? W_HINT_DIRECT : W_HINT_FILE;
    io->hint = hint;
    return 0;
}

/* ---- tries ------------------------------------------------------------------------------------------------------ */

static long recv_now(struct io *io)
{
    int count;
    const struct iovec *iov = span_next(&io->span, &count);
    if (count == 1)
        return w_sys_recv(io->fd, iov->iov_base, iov->iov_len, io->flags);
    return w_sys_recvmsg(io->fd, &(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count},
                         io->flags);
}

static long send_now(struct io *io)
{
    int count;
    const struct iovec *iov = span_next(&io->span, &count);
    if (count == 1)
        return w_sys_send(io->fd, iov->iov_base, iov->iov_len, io->flags);
    return w_sys_sendmsg(io->fd, &(struct msghdr){.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count},
                         io->flags);
}

static long transfer_now(struct io *io)
{
    int count;
    const struct iovec *iov = span_next(&io->span, &count);
    return io->side == W_SIDE_READ ? w_sys_read_now(io->fd, iov, count, io->offset)
                                   : w_sys_write_now(io->fd, iov, count);
}

/* The kernel knows no other way not to wait for this one than its mode: a tty's is set, as the contract allows. Others, an eventfd
 * for one, keep theirs while they are ready; should somebody be faster, our thread waits, and the monitor sees it. */
static long transfer_plainly(struct io *io)
{
    int count;
    const struct iovec *iov = span_next(&io->span, &count);
    bool ready = !w_sys_is_tty(io->fd) && w_sys_ready(io->fd, io->side == W_SIDE_READ ? POLLIN : POLLOUT) > 0;
    long r = ready ? 0 : w_sys_set_nonblocking(io->fd);
    if (r < 0)
        return r;
    return io->side == W_SIDE_READ ? w_sys_read(io->fd, iov, count, -1)
                                   : w_sys_write_quietly(io->fd, iov, count, w_sys_write);
}

static bool not_supported(long r)
{
    return r == -EOPNOTSUPP || r == -ENOSYS;
}

/* No socket. */
static long try_stream(struct io *io)
{
    long r = io->hint == W_HINT_PLAIN ? -EOPNOTSUPP : transfer_now(io);
    if (!not_supported(r))
        return r;
    io->hint = W_HINT_PLAIN;
    return transfer_plainly(io);
}

static long try_socket(struct io *io)
{
    return io->side == W_SIDE_READ ? recv_now(io) : send_now(io);
}

static long try_transfer(struct io *io)
{
    if (io->hint == W_HINT_TCP || io->hint == W_HINT_SOCKET) {
        long r = try_socket(io);
        if (likely(r != -ENOTSOCK))
            return r;
        r = classify(io);
        return r < 0 ? r : try_transfer(io);
    }
    return try_stream(io);
}

typedef long try_fn(struct io *io);

/* Outside the runtime: nothing of the run is touched meanwhile, which may end. A foreign thread has no P to lose. */
static long attempt(struct io *io, try_fn *try)
{
    bool ours = !(io->g->flags & W_G_FOREIGN);
    long r;
    io->before = w_use_epochs(&io->use);
    if (ours)
        w_step_out(w_m());
    while ((r = try(io)) == -EINTR)
        ;
    if (ours)
        w_enter();
    st_relaxed(&io->use.d->hint, io->hint); /* relaxed: a hint */
    return r;
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* What is left to do, as a call of the file way. */
static struct w_file_call file_call(struct io *io)
{
    struct w_file_call call = {.op = io->side == W_SIDE_READ ? W_FILE_READ : W_FILE_WRITE, .fd = io->fd};
    call.iov = span_next(&io->span, &call.count);
    call.offset = io->offset;
    return call;
}

/* Where the kernel does not tell when it is worth another try. */
static long nap(struct io *io, int64_t ns)
{
    bool ours = !(io->g->flags & W_G_FOREIGN); /* a foreign thread stays counted: the run may end meanwhile */
    w_use_end(&io->use);
    if (ours)
        w_step_out(w_m());
    int cut = weft_sleep(ns);
    if (ours)
        w_enter();
    int r = w_use_resume(&io->use);
    return r != 0 ? r : cut;
}

/* Until it succeeds or fails, or the scope ends. Returns with the use perhaps over (-EBADF). Events that are in vain again and
 * again (a datagram for one whose queue is full makes one itself, each time that it is refused) are worth a nap in between. */
static long try_or_wait(struct io *io, try_fn *try, bool try_first)
{
    for (uint32_t in_vain = 0;; in_vain++, try_first = true) {
        long r = try_first ? attempt(io, try) : -EAGAIN;
        if (likely(r != -EAGAIN) || io->flags & MSG_DONTWAIT)
            return r;
        if (in_vain == IN_VAIN) {
            in_vain = IN_VAIN - 2;
            r = nap(io, WEFT_MSEC);
        } else {
            r = w_use_wait(&io->use, io->g, io->side, &io->before);
        }
        io->waited = true;
        if (r >= 0 && unlikely(ld_relaxed(&io->use.d->hint) == W_HINT_NONE))
            r = classify(io) < 0 ? -EBADF : r; /* the number has become another's */
        if (r < 0)
            return r;
        if (r > 0) { /* epoll does not take it */
            struct w_file_call call = file_call(io);
            return w_file_block(io->g, &call);
        }
    }
}

static long read_stream(struct io *io)
{
    struct w_fd_side *s = &io->use.d->read;
    io->before = w_use_epochs(&io->use);
    bool in_vain = ld_relaxed(&s->empty) == io->before.side[W_SIDE_READ] + 1 && w_wait_refused(io->g) == 0; /* NP3 */
    long r = try_or_wait(io, try_transfer, !in_vain);
    if (r < 0)
        return r;
    if (io->hint == W_HINT_TCP && r > 0 && (size_t)r < span_size(&io->span) && !ld_relaxed(&io->use.d->shut))
        st_relaxed(&s->empty, io->before.side[W_SIDE_READ] + 1);
    return r;
}

/* Until all is written, or an error comes: then how much was, if anything was. */
static long write_all(struct io *io, try_fn *try)
{
    size_t left = span_size(&io->span);
    long done = 0, r;
    do {
        r = try_or_wait(io, try, true);
        if (r < 0)
            break;
        done += r;
        left -= (size_t)r;
        span_advance(&io->span, (size_t)r);
    } while (left > 0 && r > 0);
    return done > 0 ? done : r;
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static bool is_file(struct io *io)
{
    return io->hint >= W_HINT_FILE;
}

/* Before the thread waits in it: the number may stand for something else by now, to which a call with an offset does no harm. */
static bool still_file(struct io *io)
{
    return io->offset != -1 || (classify(io) == 0 && is_file(io));
}

/* One piece; -ESTALE: it is no file. What moves the descriptor's position is one plain call, which the kernel keeps apart from
 * others: in pieces, or through the ring, two readers would mix. */
static long file_piece(struct io *io)
{
    bool direct = io->hint == W_HINT_DIRECT, cached = io->side == W_SIDE_READ && !direct && io->offset != -1;
    long r = cached ? attempt(io, transfer_now) : -EAGAIN;
    if (r != -EAGAIN && !not_supported(r))
        return r;
    if (!still_file(io))
        return -ESTALE;
    struct w_file_call call = file_call(io);
    bool ring = r == -EAGAIN && (cached || direct) && io->offset != -1;
    return ring ? w_file_do(io->g, &call) : w_file_block(io->g, &call);
}

/* All of it, or up to the end of the file: what is cached only in part comes in pieces, if it has an offset. -ESTALE: it is no
 * file. */
static long file_transfer(struct io *io)
{
    size_t left = span_size(&io->span);
    long done = 0, r;
    for (;;) {
        r = file_piece(io);
        if (r <= 0)
            break;
        done += r;
        left -= (size_t)r;
        if (left == 0 || io->offset == -1)
            break;
        span_advance(&io->span, (size_t)r);
        io->offset += r;
    }
    return done > 0 ? done : r;
}

/* ---- reading and writing ---------------------------------------------------------------------------------------- */

static long begin(struct io *io)
{
    io->g = w_call_begin();
    long r = unlikely(io->known) ? w_use_resume(&io->use) : w_use_begin(&io->use, io->fd);
    if (r < 0)
        return r;
    io->hint = ld_relaxed(&io->use.d->hint);
    if (unlikely(io->hint == W_HINT_NONE))
        r = classify(io);
    st_relaxed(&io->use.d->hint, io->hint);
    return r;
}

/* Whoever had its turn, used or not, gives it to the next. */
static ssize_t end(struct io *io, long r)
{
    if (r >= 0 || io->waited)
        w_use_pass(&io->use, io->side);
    w_use_end(&io->use);
    w_call_end(io->g);
    return r;
}

static ssize_t transfer(struct io *io)
{
    long r = begin(io);
    if (r < 0)
        return end(io, r);
    r = -ESTALE;
    if (is_file(io))
        r = file_transfer(io);
    if (r == -ESTALE && !is_file(io))
        r = io->side == W_SIDE_READ ? read_stream(io) : write_all(io, try_transfer);
    return end(io, r);
}

/* Reads nothing, and says whether it could. */
static ssize_t transfer_nothing(int fd)
{
    return w_sys_read(fd, &(struct iovec){0}, 1, -1);
}

/* -EINVAL: a vector that makes no sense. */
static ssize_t transfer_vector(enum w_side side, int fd, const struct iovec *iov, int count)
{
    size_t sum = 0;
    if (count < 0 || count > IOV_MAX)
        return -EINVAL;
    for (int i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, iov[i].iov_len, &sum) || sum > SSIZE_MAX)
            return -EINVAL;
    if (sum == 0 && side == W_SIDE_READ)
        return transfer_nothing(fd);
    return transfer(&(struct io){.fd = fd, .side = side, .span = {.iov = iov, .count = count}, .offset = -1});
}

ssize_t weft_read(int fd, void *buffer, size_t size)
{
    return transfer_vector(W_SIDE_READ, fd, &(struct iovec){buffer, size}, 1);
}

ssize_t weft_write(int fd, const void *buffer, size_t size)
{
    return transfer_vector(W_SIDE_WRITE, fd, &(struct iovec){(void *)buffer, size}, 1);
}

ssize_t weft_readv(int fd, const struct iovec *iov, int count)
{
    return transfer_vector(W_SIDE_READ, fd, iov, count);
}

ssize_t weft_writev(int fd, const struct iovec *iov, int count)
{
    return transfer_vector(W_SIDE_WRITE, fd, iov, count);
}

static ssize_t transfer_at(enum w_side side, int fd, void *buffer, size_t size, off_t offset)
{
    struct iovec iov = {buffer, size};
    struct io io = {.fd = fd, .side = side, .span = {.iov = &iov, .count = 1}, .offset = offset};
    if (offset < 0 || size > SSIZE_MAX)
        return -EINVAL;
    long r = begin(&io);
    return end(&io, r < 0 ? r : file_transfer(&io));
}

ssize_t weft_pread(int fd, void *buffer, size_t size, off_t offset)
{
    return transfer_at(W_SIDE_READ, fd, buffer, size, offset);
}

ssize_t weft_pwrite(int fd, const void *buffer, size_t size, off_t offset)
{
    return transfer_at(W_SIDE_WRITE, fd, (void *)buffer, size, offset);
}

/* ---- messages --------------------------------------------------------------------------------------------------- */

static long try_recvmsg(struct io *io)
{
    return w_sys_recvmsg(io->fd, io->msg, io->flags);
}

static long try_sendmsg(struct io *io)
{
    int count;
    struct msghdr rest = *io->msg;
    rest.msg_iov = (struct iovec *)span_next(&io->span, &count);
    rest.msg_iovlen = (size_t)count;
    return w_sys_sendmsg(io->fd, &rest, io->flags);
}

/* A stream's MSG_WAITALL: the rest, until it is complete or the stream ends. */
static long recv_rest(struct io *io, long done)
{
    size_t left = span_size(&io->span) - (size_t)done;
    long r = done;
    while (r > 0 && left > 0) {
        span_advance(&io->span, (size_t)r);
        r = try_or_wait(io, try_transfer, true);
        if (r > 0) {
            done += r;
            left -= (size_t)r;
        }
    }
    return done;
}

ssize_t weft_recvmsg(int fd, struct msghdr *message, int flags)
{
    struct io io = {.fd = fd, .side = W_SIDE_READ, .msg = message, .flags = flags, .offset = -1};
    io.span = (struct span){.iov = message->msg_iov, .count = (int)message->msg_iovlen};
    struct msghdr asked = *message;
    long r = begin(&io);
    while (r >= 0) {
        *message = asked; /* a try that fails may have shortened what it was given */
        r = attempt(&io, try_recvmsg);
        if (r != -EAGAIN || flags & (MSG_DONTWAIT | MSG_ERRQUEUE))
            break;
        r = w_use_wait(&io.use, io.g, io.side, &io.before);
        io.waited = true;
    }
    if (r > 0 && flags & MSG_WAITALL && !(flags & MSG_PEEK) && asked.msg_controllen == 0 && w_sys_is_stream(fd))
        r = recv_rest(&io, r);
    return end(&io, r);
}

/* Of what is sent in pieces, as a stream may be, the first alone carries what goes with it. */
ssize_t weft_sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct msghdr m = *message;
    struct io io = {.fd = fd, .side = W_SIDE_WRITE, .msg = &m, .flags = flags, .offset = -1};
    io.span = (struct span){.iov = m.msg_iov, .count = (int)m.msg_iovlen};
    long r = begin(&io);
    if (r < 0)
        return end(&io, r);
    r = try_or_wait(&io, try_sendmsg, true);
    if (r <= 0 || (size_t)r == span_size(&io.span) || flags & MSG_DONTWAIT)
        return end(&io, r);
    long done = r;
    span_advance(&io.span, (size_t)r);
    r = write_all(&io, send_now);
    return end(&io, r > 0 ? done + r : done);
}

ssize_t weft_recv_from(int fd, void *buffer, size_t size, int flags, struct sockaddr *address, socklen_t *length)
{
    struct iovec iov = {buffer, size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (address != NULL && length != NULL) {
        m.msg_name = address;
        m.msg_namelen = *length;
    }
    ssize_t r = weft_recvmsg(fd, &m, flags);
    if (r >= 0 && address != NULL && length != NULL)
        *length = m.msg_namelen;
    return r;
}

ssize_t weft_send_to(int fd, const void *buffer, size_t size, int flags, const struct sockaddr *address,
                     socklen_t length)
{
    struct iovec iov = {(void *)buffer, size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (address != NULL) {
        m.msg_name = (void *)address;
        m.msg_namelen = length;
    }
    return weft_sendmsg(fd, &m, flags);
}

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* Of a socket; others are left as they are. */
static long make_nonblocking(struct io *io)
{
    long r = io->hint == W_HINT_TCP || io->hint == W_HINT_SOCKET ? 0 : classify(io);
    if (r == 0 && io->hint != W_HINT_TCP && io->hint != W_HINT_SOCKET)
        r = -ENOTSOCK;
    return r == 0 ? w_sys_set_nonblocking(io->fd) : r;
}

/* The mode is asked for each time: it is a tenth of what accept costs, and a wrong belief would stop the thread. */
static long try_accept(struct io *io)
{
    long r = make_nonblocking(io);
    if (r >= 0)
        r = w_sys_accept(io->fd, io->msg->msg_name, io->msg->msg_name != NULL ? &io->msg->msg_namelen : NULL);
    return r == -ECONNABORTED ? -EINTR : r; /* that one has gone away: the next */
}

static int accept_next(struct io *io)
{
    long r = begin(io);
    if (r == 0)
        r = try_or_wait(io, try_accept, true);
    if (r >= 0)
        w_fd_fresh((int)r);
    return (int)end(io, r);
}

int weft_accept(int fd, struct sockaddr *address, socklen_t *length)
{
    struct msghdr peer = {.msg_name = length != NULL ? address : NULL, .msg_namelen = length != NULL ? *length : 0};
    int r = accept_next(&(struct io){.fd = fd, .side = W_SIDE_READ, .msg = &peer});
    if (r >= 0 && peer.msg_name != NULL)
        *length = peer.msg_namelen;
    return r;
}

static long try_connect(struct io *io)
{
    long r = make_nonblocking(io);
    if (r >= 0)
        r = w_sys_connect(io->fd, io->msg->msg_name, io->msg->msg_namelen);
    return r == -EINTR || r == -EALREADY ? -EINPROGRESS : r;
}

/* Whether it has been decided, and how. The kernel calls the socket connected only when it is asked once more. */
static long try_connected(struct io *io)
{
    long r = w_sys_ready(io->fd, POLLOUT);
    if (r <= 0)
        return r < 0 ? r : -EAGAIN;
    r = w_sys_socket_error(io->fd);
    if (r == 0) /* or somebody else was told the error */
        r = w_sys_connect(io->fd, io->msg->msg_name, io->msg->msg_namelen);
    return r == -EISCONN ? 0 : r == -EALREADY || r == -EINPROGRESS ? -EAGAIN : r;
}

/* The listener's queue is full; nothing tells when it is no longer. */
static long connect_later(struct io *io)
{
    long r = -EAGAIN;
    for (int64_t ns = 50 * WEFT_USEC; r == -EAGAIN; ns = ns < 10 * WEFT_MSEC ? 2 * ns : ns) {
        r = nap(io, ns);
        if (r == 0)
            r = attempt(io, try_connect);
    }
    return r;
}

int weft_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct msghdr peer = {.msg_name = (void *)address, .msg_namelen = length};
    struct io io = {.fd = fd, .side = W_SIDE_WRITE, .msg = &peer};
    long r = begin(&io);
    if (r == 0)
        r = attempt(&io, try_connect);
    if (r == -EAGAIN)
        r = connect_later(&io);
    if (r == -EINPROGRESS)
        r = try_or_wait(&io, try_connected, false);
    return (int)end(&io, r);
}

/* ---- of a life that is known ------------------------------------------------------------------------------------ */

int w_fd_know(struct w_use *known, int fd)
{
    struct w_g *g = w_call_begin();
    int r = w_use_begin(known, fd);
    w_use_end(known);
    w_call_end(g);
    return r;
}

ssize_t w_read_known(const struct w_use *known, void *buffer, size_t size)
{
    struct iovec iov = {buffer, size};
    return transfer(&(struct io){.fd = known->fd,
                                 .side = W_SIDE_READ,
                                 .span = {.iov = &iov, .count = 1},
                                 .offset = -1,
                                 .use = *known,
                                 .known = true});
}

int w_accept_known(const struct w_use *known)
{
    return accept_next(
        &(struct io){.fd = known->fd, .side = W_SIDE_READ, .msg = &(struct msghdr){0}, .use = *known, .known = true});
}

/* ---- readiness -------------------------------------------------------------------------------------------------- */

static long try_ready(struct io *io)
{
    return w_sys_ready(io->fd, io->flags);
}

/* NP4: before we ask. */
static void watch(struct w_fd *d)
{
    st_relaxed(&d->watched, true);
    w_fence_seq(); /* [NP-4] poll() without a time takes no lock */
}

int weft_wait_fd(int fd, int events)
{
    struct io io = {.fd = fd, .flags = events & (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)};
    uint8_t sides = 0;
    if (io.flags == 0)
        return -EINVAL;
    if (io.flags & ~POLLOUT)
        sides |= W_SIDE_BIT(W_SIDE_READ);
    if (io.flags & POLLOUT)
        sides |= W_SIDE_BIT(W_SIDE_WRITE);
    long r = begin(&io);
    if (r == 0)
        watch(io.use.d);
    while (r == 0 && (r = attempt(&io, try_ready)) == 0) {
        r = w_use_watch(&io.use, io.g, sides, &io.before);
        if (r > 0)
            r = -EPERM; /* neither ready, nor a thing that epoll tells of */
    }
    w_use_end(&io.use);
    w_call_end(io.g);
    return (int)r;
}
