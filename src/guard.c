/* SPDX-License-Identifier: MIT */
/*
 * Guard pages that do not split a mapping.
 *
 * MADV_GUARD_INSTALL (Linux 6.13) marks pages in the page table alone: a million guards in a few dozen mappings, 0.4 us
 * each when many are installed in one call. Where the kernel does not know it (or an emulator only pretends to), guards
 * are made with mprotect, each of which costs two of the process's vm.max_map_count mappings: a quarter of those is
 * used, so that the program's own mmap and pthread_create go on working. Stacks beyond that have no guard: their
 * lowest word must stay zero, and the switch checks it (W_G_CANARY).
 *
 * Rejected: mprotect for all (fails at the 32,753rd stack, silently in more than one peer).
 */
#include "weft_internal.h"
#include <fcntl.h>
#include <stdio.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { VECTOR = 64 };

static bool by_page_table;          /* constant after w_guard_init */
static _Atomic long mprotects_left; /* each runtime may use as many; atomic */

static long max_map_count(void)
{
    long n = 65530;
    FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
    if (f == NULL)
        return n;
    if (fscanf(f, "%ld", &n) != 1)
        n = 65530;
    fclose(f);
    return n;
}

/* An advice that returned 0 is believed only if the page really is gone: user-mode emulators accept any advice. */
static bool faults(const char *page)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return false;
    bool gone = W_RESULT(syscall(SYS_write, fds[1], page, 1)) == -EFAULT;
    syscall(SYS_close, fds[0]);
    syscall(SYS_close, fds[1]);
    return gone;
}

void w_guard_init(void)
{
    st_relaxed(&mprotects_left, max_map_count() / 4 / 2);
    char *probe = w_map(W_PAGE);
    if (probe == NULL)
        return;
    by_page_table = w_madvise(probe, W_PAGE, MADV_GUARD_INSTALL) == 0 && faults(probe);
    munmap(probe, W_PAGE);
}

static bool install_marks(char *const *at, size_t n, size_t size)
{
    while (n > 0) {
        struct iovec iov[VECTOR];
        size_t k = n < VECTOR ? n : VECTOR;
        for (size_t i = 0; i < k; i++)
            iov[i] = (struct iovec){at[i], size};
        if (w_madvise_vec(iov, k, MADV_GUARD_INSTALL) != (long)(k * size)) {
            for (size_t i = 0; i < k; i++)
                if (w_madvise(at[i], size, MADV_GUARD_INSTALL) != 0)
                    return false;
        }
        at += k;
        n -= k;
    }
    return true;
}

static bool install_mappings(char *const *at, size_t n, size_t size)
{
    if (atomic_fetch_sub_explicit(&mprotects_left, (long)n, memory_order_relaxed) < (long)n) {
        add_relaxed(&mprotects_left, (long)n);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (mprotect(at[i], size, PROT_NONE) != 0)
            return false;
    return true;
}

enum w_guard w_guard_install(char *const *at, size_t n, size_t size)
{
    if (by_page_table && install_marks(at, n, size))
        return W_GUARD_PAGE;
    return install_mappings(at, n, size) ? W_GUARD_PAGE : W_GUARD_NONE;
}
