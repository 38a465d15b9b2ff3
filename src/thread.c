/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of a thread of ours that is in no call of ours: whether it computes, waits for a core, or sleeps, and in what.
 *
 * Its processor clock is the cheapest question (0.4 us); /proc is asked only if the clock leaves something open (3 us a file, 20 to 130
 * on a crowded machine). No answer is more than a hint: it may be another by the time that it is looked at.
 */
#include "sys_io.h"
#include "weft_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By the kernel's number: pthread_create may not have returned yet, or the thread not have begun (0). */
int64_t w_thread_cpu(pid_t tid)
{
    enum { OF_A_THREAD = 6 };
    struct timespec ts = {0};
    if (tid != 0)
        W_RESULT(clock_gettime((clockid_t)(~(unsigned)tid << 3 | OF_A_THREAD), &ts));
    return (int64_t)ts.tv_sec * WEFT_SEC + ts.tv_nsec;
}

/* Its clock moves while it does. */
bool w_thread_on_core(pid_t tid)
{
    int64_t before = w_thread_cpu(tid);
    return w_thread_cpu(tid) > before;
}

void w_thread_text(pid_t tid, const char *file, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/%s", (int)tid, file);
    long fd = w_sys_open(path, O_RDONLY | O_CLOEXEC, 0);
    long n = fd >= 0 ? w_sys_read((int)fd, &(struct iovec){text, size - 1}, 1, -1) : 0;
    if (fd >= 0)
        w_sys_close((int)fd);
    text[n > 0 ? n : 0] = '\0';
}

char w_thread_state(pid_t tid)
{
    char text[256];
    w_thread_text(tid, "stat", text, sizeof text);
    const char *end = strrchr(text, ')'); /* of its name */
    return end != NULL && end[1] == ' ' ? end[2] : '?';
}

/* Where nobody tells (a process that may not read about itself), its state has to do. */
bool w_thread_in_call(pid_t tid, char state)
{
    char text[256];
    w_thread_text(tid, "syscall", text, sizeof text); /* its number; -1: in none; "running" */
    return text[0] == '\0' ? state == 'S' || state == 'D' : text[0] >= '0' && text[0] <= '9';
}

long w_thread_naps(pid_t tid)
{
    static const char WORDS[] = "\nvoluntary_ctxt_switches:";
    char text[4096];
    w_thread_text(tid, "status", text, sizeof text);
    const char *at = strstr(text, WORDS);
    return at != NULL ? strtol(at + sizeof WORDS - 1, NULL, 10) : -1;
}
