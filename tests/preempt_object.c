/* SPDX-License-Identifier: MIT */
/* A shared object for test_preempt_object: code that is not the main program's. */
#include "preempt_object.h"

void object_outlast(_Atomic long *rounds, int n)
{
    for (long last = *rounds; n > 0;) {
        long now = *rounds;
        n -= now != last;
        last = now;
    }
}

void object_wait(_Atomic long *at, long before)
{
    while (*at == before)
        ;
}

void object_call(void (*fn)(void *), void *arg)
{
    fn(arg);
    __asm__ volatile(""); /* no jump in place of the call */
}
