/* SPDX-License-Identifier: MIT */
#ifndef PREEMPT_OBJECT_H
#define PREEMPT_OBJECT_H

void object_outlast(_Atomic long *rounds, int n);
void object_wait(_Atomic long *at, long before);
void object_call(void (*fn)(void *), void *arg);

#endif
