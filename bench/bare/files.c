/* SPDX-License-Identifier: MIT */
/*
 * One thread that keeps READERS requests in one io_uring: what no library can beat where the device is slow. Where the
 * page cache answers, two threads in a loop of pread can.
 */
#include "../files.h"
#include "bare.h"

#include <liburing.h>

static struct {
    struct io_uring ring;
    struct pages pages;
    struct page *buffers; /* one for each request */
    uint64_t wanted[READERS];
    uint64_t state;
} file;

static void ask(unsigned slot)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&file.ring);
    file.wanted[slot] = next_page(&file.pages, &file.state);
    io_uring_prep_read(sqe, file.pages.fd, &file.buffers[slot], PAGE_SIZE, file.wanted[slot] * PAGE_SIZE);
    io_uring_sqe_set_data64(sqe, slot);
}

/* Takes what has arrived, at least one, and asks for as many again; returns how many they were. */
static int64_t turn(void)
{
    must("io_uring_submit", io_uring_submit_and_wait(&file.ring, 1));
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&file.ring, head, cqe)
    {
        unsigned slot = (unsigned)cqe->user_data;
        check_page(&file.buffers[slot], cqe->res, file.wanted[slot]);
        ask(slot);
        n++;
    }
    io_uring_cq_advance(&file.ring, n);
    return n;
}

static int64_t turn_for(int64_t ns)
{
    int64_t done = 0, start = now_ns();
    do
        done += turn();
    while (now_ns() - start < ns);
    return done;
}

void files(const struct workload *w)
{
    if (!make_pages(w, &file.pages, w->size))
        return;
    file.state = 1;
    file.buffers = new_pages(READERS);
    int result = io_uring_queue_init(READERS, &file.ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    if (result == -EINVAL) /* before Linux 6.1 */
        result = io_uring_queue_init(READERS, &file.ring, 0);
    must("io_uring_queue_init", result);
    for (unsigned i = 0; i < READERS; i++)
        ask(i);
    turn_for(WARM_UP_NS);
    int64_t start = now_ns();
    double cpu = cpu_ms();
    struct rates r = {.done = (double)turn_for(measure_ns())};
    r.ns = (double)(now_ns() - start);
    r.cpu_ns = (cpu_ms() - cpu) * 1e6;
    report_reads(w, r);
    io_uring_queue_exit(&file.ring);
}
