/* SPDX-License-Identifier: MIT */
/* Somebody else has the dynamic linker's lock, and keeps it: for children that are about to die. */
#ifndef STUCK_H
#define STUCK_H

#include "runs.h"
#include <dlfcn.h>

static inline void *load_for_ever(void *arg)
{
    dlopen(STUCK_OBJECT, RTLD_NOW | RTLD_LOCAL);
    return arg;
}

/* Whoever waits for the lock dies of SIGALRM. */
static inline void hold_the_linkers_lock(void)
{
    int ends[2];
    char text[20];
    pthread_t thread;
    CHECK_EQ(pipe(ends), 0);
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv("STUCK_OBJECT_TELLS", text, 1);
    CHECK_EQ(pthread_create(&thread, NULL, load_for_ever, NULL), 0);
    CHECK_EQ(read(ends[0], text, 1), 1);
    alarm(30);
}

/* The unwinder takes it before gcc 12, dladdr always. */
static inline bool crashes_take_the_linkers_lock(void)
{
#if defined(DLFO_STRUCT_HAS_EH_DBASE) && (!defined(__GNUC__) || defined(__clang__) || __GNUC__ >= 12)
    return false;
#else
    return true;
#endif
}

#endif
