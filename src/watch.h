/* SPDX-License-Identifier: MIT */
/*
 * What valgrind must be told, where its headers were there when Weft was built: which memory is a stack, and that what lies on one
 * that is used again means nothing. Outside valgrind each of these is a few instructions without effect; they stand where stacks
 * are made, not where goroutines start or switch.
 */
#ifndef W_WATCH_H
#define W_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef W_VALGRIND

#include <valgrind/memcheck.h>

static inline bool w_on_valgrind(void)
{
    return RUNNING_ON_VALGRIND != 0;
}

/* Its number. */
static inline uint32_t w_watch_stack(char *lo, size_t size)
{
    return (uint32_t)VALGRIND_STACK_REGISTER(lo, lo + size - 1);
}

static inline void w_watch_forget(uint32_t number)
{
    VALGRIND_STACK_DEREGISTER(number);
}

/* May be written, and not read before. */
static inline void w_watch_fresh(void *at, size_t size)
{
    VALGRIND_MAKE_MEM_UNDEFINED(at, size);
}

static inline void w_watch_defined(void *at, size_t size)
{
    VALGRIND_MAKE_MEM_DEFINED(at, size);
}

#else

static inline bool w_on_valgrind(void)
{
    return false;
}

static inline uint32_t w_watch_stack(char *lo, size_t size)
{
    (void)lo, (void)size;
    return 0;
}

static inline void w_watch_forget(uint32_t number)
{
    (void)number;
}

static inline void w_watch_fresh(void *at, size_t size)
{
    (void)at, (void)size;
}

static inline void w_watch_defined(void *at, size_t size)
{
    (void)at, (void)size;
}

#endif

#endif
