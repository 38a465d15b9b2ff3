/* SPDX-License-Identifier: MIT */
/* The sieve, with goroutines (sieve.c) and with threads (sieve_threads.c). */
#ifndef SIEVE_H
#define SIEVE_H

#include <stdatomic.h>
#include <stdbool.h>

struct sieve {
    int primes, last;   /* how many there are to be; the last of them */
    atomic_long passed; /* numbers that were handed on */
    atomic_bool enough;
};

extern struct sieve sieve;

void sieve_with_threads(void);

#endif
