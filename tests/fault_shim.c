/* SPDX-License-Identifier: MIT */
#include "fault_shim.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Atomic int armed;
static _Atomic long calls, failed, first_bad, last_bad, blocks, mapped;

void fault_arm(int kinds, long first, long last)
{
    atomic_store(&calls, 0);
    atomic_store(&failed, 0);
    atomic_store(&first_bad, first);
    atomic_store(&last_bad, last);
    atomic_store(&armed, kinds);
}

void fault_disarm(void)
{
    atomic_store(&armed, 0);
}

long fault_failed(void)
{
    return atomic_load(&failed);
}

long fault_blocks(void)
{
    return atomic_load(&blocks);
}

long fault_mapped(void)
{
    return atomic_load(&mapped);
}

static bool fails(enum fault_kind kind)
{
    if (!(atomic_load(&armed) & (int)kind))
        return false;
    long n = atomic_fetch_add(&calls, 1) + 1;
    if (n < atomic_load(&first_bad) || n > atomic_load(&last_bad))
        return false;
    atomic_fetch_add(&failed, 1);
    return true;
}

static void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *counted(void *p)
{
    if (p != NULL)
        atomic_fetch_add(&blocks, 1);
    return p;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
char *__real_strdup(const char *s);
void __real_free(void *p);

void *__wrap_malloc(size_t size)
{
    return fails(FAULT_MALLOC) ? no_memory() : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(FAULT_MALLOC) ? no_memory() : counted(__real_calloc(n, size));
}

void *__wrap_realloc(void *p, size_t size)
{
    if (fails(FAULT_MALLOC))
        return no_memory();
    void *q = __real_realloc(p, size);
    return p == NULL ? counted(q) : q;
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fails(FAULT_MALLOC) ? no_memory() : counted(__real_aligned_alloc(align, size));
}

char *__wrap_strdup(const char *s)
{
    return fails(FAULT_MALLOC) ? no_memory() : counted(__real_strdup(s));
}

void __wrap_free(void *p)
{
    if (p != NULL)
        atomic_fetch_sub(&blocks, 1);
    __real_free(p);
}

void *__real_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t at);
int __real_munmap(void *addr, size_t size);

void *__wrap_mmap(void *addr, size_t size, int prot, int flags, int fd, off_t at)
{
    if (fails(FAULT_MMAP)) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *p = __real_mmap(addr, size, prot, flags, fd, at);
    if (p != MAP_FAILED)
        atomic_fetch_add(&mapped, (long)size);
    return p;
}

int __wrap_munmap(void *addr, size_t size)
{
    int r = __real_munmap(addr, size);
    if (r == 0)
        atomic_fetch_sub(&mapped, (long)size);
    return r;
}

/* ---- the rest --------------------------------------------------------------------------------------------------- */

int __real_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg);
int __real_madvise(void *addr, size_t size, int advice);
int __real_mprotect(void *addr, size_t size, int prot);
long __real_syscall(long number, ...);

int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *attr, void *(*fn)(void *), void *arg)
{
    return fails(FAULT_THREAD) ? EAGAIN : __real_pthread_create(t, attr, fn, arg);
}

static int refused(int e)
{
    errno = e;
    return -1;
}

int __wrap_madvise(void *addr, size_t size, int advice)
{
    return fails(FAULT_ADVICE) ? refused(EINVAL) : __real_madvise(addr, size, advice);
}

int __wrap_mprotect(void *addr, size_t size, int prot)
{
    return fails(FAULT_ADVICE) ? refused(ENOMEM) : __real_mprotect(addr, size, prot);
}

long __wrap_syscall(long number, ...)
{
    long a[6];
    va_list ap;
    va_start(ap, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    bool may_fail = number == SYS_membarrier;
#ifdef SYS_process_madvise
    may_fail |= number == SYS_process_madvise;
#endif
    if (may_fail && fails(FAULT_ADVICE))
        return refused(ENOSYS);
    return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
