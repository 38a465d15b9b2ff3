/* SPDX-License-Identifier: MIT */
/*
 * What the sanitizers must be told: that a switch changes the stack (ASan) and the logical thread (TSan).
 * In ordinary builds all of it is empty.
 */
#ifndef W_SANITIZE_H
#define W_SANITIZE_H

#if defined(__SANITIZE_THREAD__)
#define W_TSAN 1
#elif defined(__SANITIZE_ADDRESS__)
#define W_ASAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define W_TSAN 1
#elif __has_feature(address_sanitizer)
#define W_ASAN 1
#endif
#endif

#if defined(W_TSAN)

#define W_SANITIZED        1
#define W_SANITIZER_FIELDS void *fiber;
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#define W_SAN_THREAD(m) ((m)->fiber = __tsan_get_current_fiber())
#define W_SAN_BIND(g)   ((g)->fiber = __tsan_create_fiber(0))
#define W_SAN_UNBIND(g)                       \
    do {                                      \
        if ((g)->fiber != NULL)               \
            __tsan_destroy_fiber((g)->fiber); \
        (g)->fiber = NULL;                    \
    } while (0)
#define W_SAN_UNMAP(addr, size)               ((void)0)
#define W_SAN_ABANDON(g)                      ((g)->fiber = NULL) /* its thread still runs it */
#define W_SAN_LEAVE(from, to, lo, size, last) __tsan_switch_to_fiber((to)->fiber, 0)
#define W_SAN_ARRIVE(self)                    ((void)0)

#elif defined(W_ASAN)

#define W_SANITIZED 1
#define W_SANITIZER_FIELDS     \
    void *fake_stack, *own_lo; \
    size_t own_size;
#include <pthread.h>
#include <stddef.h>
void __sanitizer_start_switch_fiber(void **fake, const void *lo, size_t size);
void __sanitizer_finish_switch_fiber(void *fake, const void **lo, size_t *size);
void __asan_unpoison_memory_region(void const volatile *addr, size_t size);
#define W_SAN_THREAD(m)                                              \
    do {                                                             \
        pthread_attr_t attr_;                                        \
        pthread_getattr_np(pthread_self(), &attr_);                  \
        pthread_attr_getstack(&attr_, &(m)->own_lo, &(m)->own_size); \
        pthread_attr_destroy(&attr_);                                \
    } while (0)
/* A recycled stack still carries the red zones of frames that were never left. */
#define W_SAN_BIND(g)           __asan_unpoison_memory_region((g)->stack_lo, w_stack_size((g)->stack_class))
#define W_SAN_UNBIND(g)         ((void)0)
/* Whatever is mapped there next starts clean. */
#define W_SAN_UNMAP(addr, size) __asan_unpoison_memory_region(addr, size)
#define W_SAN_ABANDON(g)        ((void)0)
#define W_SAN_LEAVE(from, to, lo, size, last) \
    __sanitizer_start_switch_fiber((last) ? NULL : &(from)->fake_stack, lo, size)
#define W_SAN_ARRIVE(self) __sanitizer_finish_switch_fiber((self)->fake_stack, NULL, NULL)

#else

#define W_SANITIZER_FIELDS
#define W_SAN_THREAD(m)                       ((void)0)
#define W_SAN_BIND(g)                         ((void)0)
#define W_SAN_UNBIND(g)                       ((void)0)
#define W_SAN_UNMAP(addr, size)               ((void)0)
#define W_SAN_ABANDON(g)                      ((void)0)
#define W_SAN_LEAVE(from, to, lo, size, last) ((void)0)
#define W_SAN_ARRIVE(self)                    ((void)0)

#endif

#endif
