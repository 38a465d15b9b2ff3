/* SPDX-License-Identifier: MIT */
/*
 * What a user of a packed Weft writes (the amalgamation, the Debian packages), on one processor: channels and a scope, a hog that
 * can only be stopped by a signal, a conversation over a socket.
 *
 *   $ ./app
 *   squares 332833500, the hog was stopped, the socket said hello
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <weft.h>

static weft_chan_of(long) squares;
static atomic_bool stop;

static void square(void *n)
{
    weft_put(squares, *(long *)n * *(long *)n);
}

static long sum_of_squares(void)
{
    long sum = 0, n;
    squares = weft_make(long, 16);
    for (long i = 0; i < 1000; i++)
        weft_go_copy(square, &i, sizeof i);
    for (int i = 0; i < 1000 && weft_take(squares, &n) == 0; i++)
        sum += n;
    weft_free_of(squares);
    return sum;
}

static void compute(void *arg)
{
    (void)arg;
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
}

/* On the only processor; this comes back to life only if the hog is stopped. */
static void stop_a_hog(void)
{
    weft_scope s;
    weft_scope_open(&s, WEFT_NEVER);
    weft_scope_go(&s, compute, NULL);
    weft_sleep(5 * WEFT_MSEC);
    atomic_store(&stop, true);
    weft_scope_close(&s);
}

static void say_hello(void *arg)
{
    weft_sleep(WEFT_MSEC);
    weft_write(*(int *)arg, "hello", 5);
}

static void converse(char *heard)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) != 0)
        return;
    weft_go(say_hello, &fds[0]);
    for (ssize_t n = 0, got = 0; got < 5 && (n = weft_read(fds[1], heard + got, (size_t)(5 - got))) > 0;)
        got += n;
    weft_close_fd(fds[0]);
    weft_close_fd(fds[1]);
}

static void start(void *arg)
{
    char heard[6] = "";
    (void)arg;
    long sum = sum_of_squares();
    stop_a_hog();
    converse(heard);
    printf("squares %ld, the hog was stopped, the socket said %s\n", sum, heard);
}

int main(void)
{
    return weft_run_with(&(weft_config){.procs = 1}, start, NULL) == 0 ? 0 : 1;
}
