/* SPDX-License-Identifier: MIT */
/*
 * Files through io_uring: one ring for the run, made when a file first has to be waited for.
 *
 * A goroutine puts its call into the ring and parks. The call is submitted at once, unless the M has nothing else to run and
 * polls next (netpoll.c), or other goroutines whose file calls ended in the same moment are about to run: most likely they make
 * calls again, and all go to the kernel in one system call. The ring's descriptor is in the poller's epoll, so a
 * completion wakes the M that sleeps there.
 *
 * The kernel has the goroutine's buffer until the call has ended: the wait cannot be cut, and the end of the run waits for
 * the calls that are under way.
 *
 * liburing is loaded when the ring is made, so that no program has to link it. No ring, because the kernel has none or
 * forbids it, or there is no liburing, or WEFT_URING=0: file.c does it in another way.
 */
#include "file.h"
#include "netpoll.h"
#include <dlfcn.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 256, SUBMIT_AT = 16 };

enum state { UNTRIED, THERE, MISSING };

static struct {
    _Atomic int state; /* enum state; changed under setup */
    struct w_lock setup;
    struct io_uring ring;
    struct w_spin submitting;   /* the ring's front half */
    struct w_spin completing;   /* its back half */
    _Atomic uint32_t pending;   /* in the ring, and the kernel does not know yet; written under submitting */
    _Atomic uint32_t under_way; /* of all that was put in: not completed yet */
} uring;

/* What liburing.h does not have inline. */
static struct {
    void *handle;
    int (*queue_init)(unsigned, struct io_uring *, unsigned);
    void (*queue_exit)(struct io_uring *);
    int (*submit)(struct io_uring *);
    struct io_uring_sqe *(*get_sqe)(struct io_uring *);
    int (*get_cqe)(struct io_uring *, struct io_uring_cqe **, unsigned, unsigned, sigset_t *);
} lib;

struct ring_wait {
    struct w_wait wait;
    struct w_waiter node;
};

/* ---- the ring --------------------------------------------------------------------------------------------------- */

static bool wanted(void)
{
    const char *text = getenv("WEFT_URING");
    return text == NULL || strcmp(text, "0") != 0;
}

static bool find_symbol(const char *name, void *at)
{
    void *symbol = dlsym(lib.handle, name);
    memcpy(at, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(void)
{
    lib.handle = dlopen("liburing.so.2", RTLD_NOW | RTLD_LOCAL);
    return lib.handle != NULL && find_symbol("io_uring_queue_init", &lib.queue_init) &&
           find_symbol("io_uring_queue_exit", &lib.queue_exit) && find_symbol("io_uring_submit", &lib.submit) &&
           find_symbol("io_uring_get_sqe", &lib.get_sqe) && find_symbol("__io_uring_get_cqe", &lib.get_cqe);
}

static void unload(void)
{
    if (lib.handle != NULL)
        dlclose(lib.handle);
    lib.handle = NULL;
}

static enum state set_up(void)
{
    if (wanted() && load() && lib.queue_init(ENTRIES, &uring.ring, IORING_SETUP_CLAMP) == 0) {
        if (w_poll_join(uring.ring.ring_fd) == 0)
            return THERE;
        lib.queue_exit(&uring.ring);
    }
    unload();
    return MISSING;
}

static bool there(void)
{
    int state = ld_acquire(&uring.state); /* [UR-1] the ring */
    if (likely(state != UNTRIED))
        return state == THERE;
    w_lock(&uring.setup, W_RANK_RING);
    if (ld_relaxed(&uring.state) == UNTRIED)
        st_release(&uring.state, (int)set_up()); /* [UR-1] */
    w_unlock(&uring.setup, W_RANK_RING);
    return ld_relaxed(&uring.state) == THERE;
}

static void submit_locked(void)
{
    int n = lib.submit(&uring.ring);
    if (n > 0)
        st_relaxed(&uring.pending, ld_relaxed(&uring.pending) - (uint32_t)n);
}

void w_uring_submit(void)
{
    if (ld_relaxed(&uring.pending) == 0) /* relaxed: whoever put something in polls, or the monitor does */
        return;
    w_spin_lock(&uring.submitting);
    if (ld_relaxed(&uring.pending) > 0)
        submit_locked();
    w_spin_unlock(&uring.submitting);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

static struct io_uring_sqe *get_sqe_locked(void)
{
    struct io_uring_sqe *sqe = lib.get_sqe(&uring.ring);
    if (sqe == NULL) {
        submit_locked();
        sqe = lib.get_sqe(&uring.ring);
    }
    return sqe;
}

static void fill(struct io_uring_sqe *sqe, const struct w_file_call *c)
{
    if (c->op == W_FILE_READ)
        io_uring_prep_readv(sqe, c->fd, c->iov, (unsigned)c->count, (uint64_t)c->offset);
    else if (c->op == W_FILE_WRITE)
        io_uring_prep_writev(sqe, c->fd, c->iov, (unsigned)c->count, (uint64_t)c->offset);
    else
        io_uring_prep_fsync(sqe, c->fd, 0);
}

static void after_put(struct w_m *m, struct w_g *prev, void *arg)
{
    (void)prev, (void)arg;
    bool polls = m->g == NULL && m->pinned_g == NULL && m->picked == NULL && ld_relaxed(&w_sched.globq.len) == 0;
    bool more = polls || (m->p->ring_batch > 0 && --m->p->ring_batch > 0);
    if (!more || ld_relaxed(&uring.pending) >= SUBMIT_AT)
        submit_locked();
    w_spin_unlock(&uring.submitting);
}

long w_uring_do(struct w_g *g, const struct w_file_call *call)
{
    struct ring_wait self;
    if (g->flags & W_G_FOREIGN || !there())
        return -ENOSYS;
    w_spin_lock(&uring.submitting);
    bool room = ld_relaxed(&uring.under_way) < uring.ring.cq.ring_entries; /* it is raised under this lock */
    struct io_uring_sqe *sqe = room ? get_sqe_locked() : NULL;
    if (sqe == NULL) {
        w_spin_unlock(&uring.submitting);
        return -ENOSYS;
    }
    w_wait_init(&self.wait, g, W_NO_CUT);
    w_waiter_init(&self.node, &self.wait, NULL, 0);
    fill(sqe, call);
    io_uring_sqe_set_data(sqe, &self.node);
    st_relaxed(&uring.pending, ld_relaxed(&uring.pending) + 1);
    add_acq_rel(&uring.under_way, 1); /* [UR-2] the wait, for whoever completes it: the kernel is between us */
    w_poll_count(1);
    w_park(after_put, NULL, W_REASON_FILE, (const void *)(intptr_t)call->fd);
    w_poll_count(-1);
    return self.wait.result;
}

/* ---- completions ------------------------------------------------------------------------------------------------ */

bool w_uring_pending(void)
{
    return ld_relaxed(&uring.pending) > 0;
}

uint32_t w_uring_complete(struct w_claimed *c)
{
    struct io_uring_cqe *cqe;
    uint32_t n = 0, head;
    if (ld_acquire(&uring.state) != THERE || ld_relaxed(&uring.under_way) == 0) /* [UR-1] */
        return 0;
    w_spin_lock(&uring.completing);
    io_uring_for_each_cqe(&uring.ring, head, cqe)
    {
        (void)ld_acquire(&uring.under_way); /* [UR-2] for each: it was put in before it could end */
        w_claimed_add(c, io_uring_cqe_get_data(cqe), cqe->res);
        n++;
    }
    io_uring_cq_advance(&uring.ring, n);
    w_spin_unlock(&uring.completing);
    add_acq_rel(&uring.under_way, -n); /* [UR-2] */
    return n;
}

/* The goroutines are gone, the threads too; the kernel may still be writing into their buffers. */
void w_uring_done(void)
{
    if (ld_relaxed(&uring.state) == THERE) {
        uint32_t left = ld_relaxed(&uring.under_way) - ld_relaxed(&uring.pending);
        struct io_uring_cqe *cqe;
        for (; left > 0; left--) {
            while (lib.get_cqe(&uring.ring, &cqe, 0, 1, NULL) == -EINTR)
                ;
            io_uring_cq_advance(&uring.ring, 1);
        }
        lib.queue_exit(&uring.ring);
        unload();
    }
    st_relaxed(&uring.state, UNTRIED);
    st_relaxed(&uring.pending, 0);
    st_relaxed(&uring.under_way, 0);
}
