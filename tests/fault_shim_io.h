/* SPDX-License-Identifier: MIT */
/*
 * Calls for input and output that go wrong at random. The library makes them through syscall(), which the executable is linked
 * with --wrap for: at random and seeded, one is interrupted, has nothing to say, does a part, fails, or takes its time.
 */
#ifndef FAULT_SHIM_IO_H
#define FAULT_SHIM_IO_H

#include <stdint.h>

enum io_fault {
    IO_EINTR = 1,
    IO_EAGAIN = 2, /* spurious */
    IO_SHORT = 4,  /* reads and writes */
    IO_ENOBUFS = 8,
    IO_NO_WATCH = 16, /* epoll_ctl: -ENOMEM */
    IO_SLOW = 32,     /* a moment before the call, and one after it */
};

/* From now on, of each `one_in` calls that could, about one goes wrong in one of these ways. */
void io_faults_arm(int kinds, uint32_t one_in, uint64_t seed);
void io_faults_disarm(void);
long io_faults_made(void);

#endif
