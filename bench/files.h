/* SPDX-License-Identifier: MIT */
/*
 * The file of files_hot and files_direct: pages that are read at random, each with its number at its start. It has no
 * name any more once it is made. Made with O_DIRECT it is not in the page cache, made without it is.
 */
#ifndef BENCH_FILES_H
#define BENCH_FILES_H

#include "harness.h"

#include <fcntl.h>
#include <unistd.h>

enum { READERS = 32, PAGE_SIZE = 4096, CHUNK = 256 };

struct pages {
    int fd;
    uint64_t count;
};

struct page {
    _Alignas(PAGE_SIZE) union {
        uint64_t number;
        char bytes[PAGE_SIZE];
    };
};

static inline struct page *new_pages(size_t n)
{
    struct page *pages = aligned_alloc(PAGE_SIZE, n * PAGE_SIZE);
    if (pages == NULL)
        die("aligned_alloc", ENOMEM);
    memset(pages, 0, n * PAGE_SIZE);
    return pages;
}

static inline void write_pages(const struct pages *p)
{
    struct page *chunk = new_pages(CHUNK);
    for (uint64_t first = 0; first < p->count; first += CHUNK) {
        for (uint64_t i = 0; i < CHUNK; i++)
            chunk[i].number = first + i;
        if (write(p->fd, chunk, sizeof *chunk * CHUNK) != (ssize_t)(sizeof *chunk * CHUNK))
            die("the file of pages", errno);
    }
    if (fsync(p->fd) != 0)
        die("fsync", errno);
    free(chunk);
}

static inline int create_in(const char *folder, int flags)
{
    char path[256];
    snprintf(path, sizeof path, "%s/weft_bench.%d", folder, (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | flags, 0600);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* flags: 0 or O_DIRECT. False, after a line on stderr, where no file system at hand can do it. */
static inline bool make_pages(const struct workload *w, struct pages *p, int flags)
{
    p->count = (uint64_t)(tiny() ? 2 : quick() ? 32 : 256) * 1024 * 1024 / PAGE_SIZE;
    p->fd = create_in("/var/tmp", flags);
    if (p->fd < 0)
        p->fd = create_in(".", flags);
    if (p->fd < 0) {
        fprintf(stderr, "bench: %s: no file for it in /var/tmp nor here: %s\n", w->name, strerror(errno));
        return false;
    }
    write_pages(p);
    return true;
}

/* The number of the next page; each reader has a state of its own, not 0 at first. */
static inline uint64_t next_page(const struct pages *p, uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state % p->count;
}

static inline void check_page(const struct page *page, ssize_t size, uint64_t number)
{
    expect("the size of a read", size, PAGE_SIZE);
    expect("a page", (int64_t)page->number, (int64_t)number);
}

static inline void report_reads(const struct workload *w, struct rates r)
{
    report(w, r.ns / r.done, "ns");
    report_part(w, "cpu", r.cpu_ns / r.done, "ns");
}

#endif
