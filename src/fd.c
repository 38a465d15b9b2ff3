/* SPDX-License-Identifier: MIT */
/*
 * Descriptor numbers, which are reused.
 *
 * `use` is one word: the number's life, two flags, and how many calls are under way with it.
 *
 *      weft_close_fd:   life + 1, CLOSING   ── waiters of the old life are woken with -EBADF; a call that begins now gets it too
 *                       calls == 0 ?        ── waits for those that are inside
 *                       IN_KERNEL           ── a call that begins now waits: the number may be somebody else's already
 *                       close(2)
 *                       neither             ── a call that waited finds EBADF in the kernel, or the new descriptor
 *
 * A call that sleeps is not under way: it counts itself out, and in again if the life is still its own. So no call touches
 * the descriptor of another life, and the number is not given away under a call.
 *
 * A number that comes from the kernel through us (accept, open) begins a new life as well: it may have been closed behind our
 * back.
 */
#include "fd.h"
#include "netpoll.h"
#include "sys_io.h"

#define CLOSING    ((uint64_t)1 << 31)
#define IN_KERNEL  ((uint64_t)1 << 30)
#define CALLS      (IN_KERNEL - 1)
#define ONE_LIFE   ((uint64_t)1 << 32)
#define LIFE(word) ((uint32_t)((word) >> 32))

enum {
    CHUNK = 256,      /* numbers whose entries are mapped at once: 32 KiB of address space */
    CHUNKS = 1 << 12, /* 2^20 numbers, the kernel's own default limit */
    YIELDS = 16,
};

static _Atomic(struct w_fd *) chunks[CHUNKS];

/* ---- the table -------------------------------------------------------------------------------------------------- */

struct w_fd *w_fd_find(int fd)
{
    if (fd < 0 || fd >= CHUNK * CHUNKS)
        return NULL;
    struct w_fd *chunk = ld_acquire(&chunks[fd / CHUNK]); /* [FD-1] zeroed pages */
    return chunk != NULL ? &chunk[fd % CHUNK] : NULL;
}

static struct w_fd *find_or_make(int fd)
{
    struct w_fd *d = w_fd_find(fd);
    if (likely(d != NULL))
        return d;
    struct w_fd *chunk = w_map(CHUNK * sizeof *chunk), *none = NULL;
    if (chunk == NULL)
        return NULL;
    if (!cas_acq_rel(&chunks[fd / CHUNK], &none, chunk)) /* [FD-1] */
        munmap(chunk, CHUNK * sizeof *chunk);
    w_poll_prepare();
    return w_fd_find(fd);
}

void w_fds_done(void)
{
    for (uint32_t i = 0; i < CHUNKS; i++) {
        struct w_fd *chunk = ld_relaxed(&chunks[i]);
        if (chunk != NULL)
            munmap(chunk, CHUNK * sizeof *chunk);
        st_relaxed(&chunks[i], NULL);
    }
}

/* ---- uses ------------------------------------------------------------------------------------------------------- */

/* One step of waiting, the i-th from 0 on, for another call; inside the runtime, holding nothing. -EPERM: in vain, the run has
 * ended around a foreign thread, and those whom it waits for are gone. May be cut: -ECANCELED, -ETIMEDOUT. */
static int stand_aside(uint32_t i, bool may_cut)
{
    int r = 0;
    if (w_m() == NULL) {
        w_back_off(i);
        return w_up() ? 0 : -EPERM;
    }
    w_step_out(w_m());
    if (i < YIELDS) {
        weft_yield();
    } else {
        if (!may_cut)
            weft_shield();
        r = weft_sleep(100 * WEFT_USEC);
        if (!may_cut)
            weft_unshield();
    }
    w_enter();
    return r;
}

/* -EAGAIN: the number is just being given back to the kernel: the use is of the life that begins then. */
static int count_in(struct w_use *u, bool any_life)
{
    uint64_t word = add_acq_rel(&u->d->use, 1); /* [FD-2] after what weft_close_fd did to the entry */
    bool ours = any_life || LIFE(word) == u->life;
    u->life = any_life ? LIFE(word) : u->life;
    if (likely(ours && !(word & CLOSING)))
        return 0;
    w_use_end(u);
    return ours && word & IN_KERNEL ? -EAGAIN : -EBADF;
}

static int find_for(struct w_use *u, int fd)
{
    *u = (struct w_use){.fd = fd};
    if (unlikely(fd < 0))
        return -EBADF;
    if (unlikely(fd >= CHUNK * CHUNKS))
        return w_sys_flags(fd) < 0 ? -EBADF : -EMFILE;
    if (unlikely(w_m() == NULL) && !w_up())
        return -EPERM;
    u->d = find_or_make(fd);
    return likely(u->d != NULL) ? 0 : -ENOMEM;
}

static int failed(struct w_use *u, int r)
{
    u->d = NULL;
    return r;
}

int w_use_begin(struct w_use *u, int fd)
{
    int r = find_for(u, fd);
    if (unlikely(r != 0))
        return r;
    for (uint32_t i = 0; (r = count_in(u, i == 0)) == -EAGAIN; i++)
        if ((r = stand_aside(i, true)) != 0)
            break;
    return likely(r == 0) ? 0 : failed(u, r);
}

int w_use_try_begin(struct w_use *u, int fd)
{
    int r = find_for(u, fd);
    if (r == 0 && count_in(u, true) != 0)
        r = failed(u, -EBADF);
    return r;
}

void w_use_end(struct w_use *u)
{
    if (u->d != NULL)
        add_acq_rel(&u->d->use, (uint64_t)-1); /* [FD-2] the call is over before the number is closed */
}

int w_use_resume(struct w_use *u)
{
    return likely(count_in(u, false) == 0) ? 0 : failed(u, -EBADF);
}

uint32_t w_fd_life(struct w_fd *d)
{
    return LIFE(
        ld_relaxed(&d->use)); /* relaxed: asked under a guard, to which whoever begins a life comes afterwards */
}

bool w_use_current(const struct w_use *u)
{
    return w_fd_life(u->d) == u->life;
}

bool w_fd_in_use(struct w_fd *d)
{
    return (ld_acquire(&d->use) & CALLS) != 0; /* [FD-2] */
}

/* ---- the ends of lives ------------------------------------------------------------------------------------------ */

/* Begins a life that ends: its number is to be closed. -EBADF: somebody else is closing it; -EAGAIN: and is almost done. */
static int last_life(struct w_fd *d)
{
    uint64_t word = ld_relaxed(&d->use);
    do {
        if (word & CLOSING)
            return word & IN_KERNEL ? -EAGAIN : -EBADF;
    } while (!cas_acq_rel(&d->use, &word, (word + ONE_LIFE) | CLOSING)); /* [FD-2] */
    return 0;
}

static int begin_last_life(struct w_fd *d)
{
    int r;
    for (uint32_t i = 0; (r = last_life(d)) == -EAGAIN; i++)
        if (stand_aside(i, false) != 0)
            return -EBADF;
    return r;
}

/* The number is free, as far as we know. Unless it has begun another life meanwhile. */
static void end_life(struct w_fd *d, uint32_t life)
{
    uint64_t word = ld_relaxed(&d->use);
    while (LIFE(word) == life && !cas_acq_rel(&d->use, &word, word & ~(CLOSING | IN_KERNEL))) /* [FD-2] */
        ;
}

/* It was closed behind our back, and is another's. */
void w_fd_mistaken(struct w_fd *d)
{
    st_relaxed(&d->read.empty, 0);
    st_relaxed(&d->hint, W_HINT_NONE);
    st_relaxed(&d->shut, false);
}

/* What was known belongs to the life that has ended. */
static void forget(struct w_fd *d)
{
    w_poll_end_waits(d, -EBADF);
    w_fd_mistaken(d);
    st_relaxed(&d->asked, 0);
    st_relaxed(&d->watched, false);
}

/* Whoever closes it in the kernel is done with the number, though perhaps not yet with what it stood for. */
void w_fd_fresh(int fd)
{
    struct w_fd *d = w_m() != NULL || w_up() ? w_fd_find(fd) : NULL; /* a foreign thread may ask when no run is up */
    if (d == NULL)
        return;
    uint64_t word = ld_relaxed(&d->use);
    do {
        if ((word & (CLOSING | IN_KERNEL)) == CLOSING)
            return; /* it will be closed before it is used */
    } while (!cas_acq_rel(&d->use, &word, (word + ONE_LIFE) & ~(CLOSING | IN_KERNEL))); /* [FD-2] */
    forget(d);
}

/* It may wait: for data that lingers, for a file system. EINTR: the number is free all the same. */
static int close_in_kernel(int fd)
{
    bool ours = w_m() != NULL;
    if (ours) {
        w_step_out(w_m());
        weft_block_enter();
    }
    int r = (int)w_sys_close(fd);
    if (ours) {
        weft_block_leave();
        w_enter();
    }
    return r == -EINTR ? 0 : r;
}

/* A socket that lingers would keep its number from others who have got it from the kernel long before: the socket is closed
 * under another number then. */
static int close_number(struct w_fd *d, int fd, uint32_t life)
{
    long copy = w_sys_lingers(fd) ? w_sys_dup(fd) : -1;
    int r = copy < 0 ? close_in_kernel(fd) : (int)w_sys_close(fd);
    end_life(d, life);
    return copy < 0 ? r : close_in_kernel((int)copy);
}

/* Calls under way wait for nothing, except for a file; but their goroutines may have to wait for a P. */
static int close_known(struct w_fd *d, int fd)
{
    int r = begin_last_life(d);
    if (r != 0)
        return r;
    uint32_t life = w_fd_life(d);
    w_poll_end_waits(d, -EBADF);
    for (uint32_t i = 0; w_fd_in_use(d) && stand_aside(i, false) == 0; i++)
        ;
    if (ld_relaxed(&d->asked) != 0)
        w_poll_dismiss(fd);
    forget(d);
    atomic_fetch_or_explicit(&d->use, IN_KERNEL, memory_order_release); /* [FD-2] */
    return close_number(d, fd, life);
}

/* Also of a number that nobody has used so far: somebody may begin to just now. */
int weft_close_fd(int fd)
{
    struct w_g *g = w_call_begin();
    bool counted = fd >= 0 && fd < CHUNK * CHUNKS && (w_m() != NULL || w_up());
    struct w_fd *d = counted ? find_or_make(fd) : NULL;
    int r = d != NULL ? close_known(d, fd) : close_in_kernel(fd);
    w_call_end(g);
    return r;
}
