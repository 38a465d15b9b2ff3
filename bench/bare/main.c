/* SPDX-License-Identifier: MIT */
/* The same work with nothing between the program and the kernel: what a library's figures can come close to. */
#include "bare.h"

#include <fcntl.h>

static const struct workload workloads[] = {
    {"preempt_high", 2, preempt, 0},
    {"ready_high", 2, ready, 0},
    {"preempt_cost", 1, preempt_cost, 0},
    {"preempt_own", 1, preempt_own, 0},
    {"echo_2p", 2, echo, 0},
    {"http_raw", 2, http_raw, 0},
    {"files_hot", 0, files, 0},
    {"files_direct", 0, files, O_DIRECT},
    {0},
};

static void start(const struct workload *w)
{
    w->run(w);
}

int main(int argc, char **argv)
{
    return bench_main(argc, argv, workloads, start);
}
