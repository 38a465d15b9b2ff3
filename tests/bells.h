/* SPDX-License-Identifier: MIT */
/* What the tests of priorities share: the ways to wake somebody while every P is busy. */
#ifndef BELLS_H
#define BELLS_H

#include "priorities.h"
#include <fcntl.h>

/* How somebody who waits is woken while every P is busy, and the goroutine that waits for it. */
struct wake {
    const char *name;
    weft_fn *waits;
    void (*wake)(void);
};

static struct {
    weft_chan *ch;
    int fd[2];
    int64_t nap;
    _Atomic int waiting, ran;
} alarm_bell;

static inline void wait_for_value(void *arg)
{
    alarm_bell.waiting++;
    CHECK_EQ(weft_recv(alarm_bell.ch, NULL), 0);
    count(arg);
}

static inline void *send_from_outside(void *arg)
{
    CHECK_EQ(weft_send(alarm_bell.ch, &(int){1}), 0);
    return arg;
}

static inline void by_a_foreign_thread(void)
{
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, send_from_outside, NULL), 0);
    pthread_join(thread, NULL);
}

static inline void wait_for_time(void *arg)
{
    alarm_bell.waiting++;
    CHECK_EQ(weft_sleep(alarm_bell.nap), 0);
    count(arg);
}

static inline void by_time(void)
{
}

static inline void wait_for_byte(void *arg)
{
    char byte;
    alarm_bell.waiting++;
    CHECK_EQ(weft_read(alarm_bell.fd[0], &byte, 1), 1);
    count(arg);
}

static inline void by_a_descriptor(void)
{
    CHECK_EQ(write(alarm_bell.fd[1], "x", 1), 1);
}

static const struct wake WAKES[] = {
    {"a foreign thread", wait_for_value, by_a_foreign_thread},
    {"time", wait_for_time, by_time},
    {"a descriptor", wait_for_byte, by_a_descriptor},
};
enum { WAKES_COUNT = sizeof WAKES / sizeof WAKES[0] };

static inline void set_up_bell(void)
{
    alarm_bell.waiting = alarm_bell.ran = 0;
    alarm_bell.nap = 20 * WEFT_MSEC;
    alarm_bell.ch = weft_chan_new(sizeof(int), 64);
    CHECK_EQ(pipe2(alarm_bell.fd, O_CLOEXEC), 0);
}

static inline void take_down_bell(void)
{
    weft_chan_free(alarm_bell.ch);
    CHECK_EQ(weft_close_fd(alarm_bell.fd[0]), 0);
    CHECK_EQ(weft_close_fd(alarm_bell.fd[1]), 0);
}

#endif
