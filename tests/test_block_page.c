/* SPDX-License-Identifier: MIT */
/*
 * Who waits for a page computes, as far as the program can tell: it keeps its P, unless that takes long. The page is one that another
 * thread provides when it likes (userfaultfd).
 */
#include "runs.h"
#include "whitebox.h"
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

enum { PAGE = 4096, TRIES = 20, BRIEFLY = 3000, LONG = 200000 /* us */ };

static struct {
    int fd;
    char *page;
    useconds_t after; /* it is provided */
    _Atomic int ran;  /* the other one, so often */
    _Atomic bool over;
} world;

static bool open_world(void)
{
    struct uffdio_api api = {.api = UFFD_API};
    world.fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    if (world.fd >= 0 && ioctl(world.fd, UFFDIO_API, &api) == 0)
        return true;
    skipped("the kernel leaves no page faults to programs here");
    if (world.fd >= 0)
        close(world.fd);
    return false;
}

static void prepare_page(void)
{
    world.page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(world.page != MAP_FAILED);
    struct uffdio_register all = {.range = {(uintptr_t)world.page, PAGE}, .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK_EQ(ioctl(world.fd, UFFDIO_REGISTER, &all), 0);
}

static void *provide(void *arg)
{
    struct uffd_msg fault;
    struct uffdio_zeropage zero = {.range = {(uintptr_t)world.page, PAGE}};
    CHECK_EQ(read(world.fd, &fault, sizeof fault), (ssize_t)sizeof fault);
    usleep(world.after);
    CHECK_EQ(ioctl(world.fd, UFFDIO_ZEROPAGE, &zero), 0);
    return arg;
}

static void count_turns(void *arg)
{
    (void)arg;
    for (; !world.over; world.ran++)
        weft_yield();
}

/* One page, on one P that another goroutine wants. How often that was lost. */
static void wait_for_page(void *lost)
{
    pthread_t thread;
    world.ran = 0;
    world.over = false;
    prepare_page();
    CHECK_EQ(weft_go(count_turns, NULL), 0);
    weft_yield();
    CHECK_EQ(pthread_create(&thread, NULL, provide, NULL), 0);
    long before = losses();
    int ran = world.ran;
    CHECK_EQ(*(volatile char *)world.page, 0);
    *(long *)lost = losses() - before;
    CHECK(*(long *)lost > 0 || world.ran == ran);
    world.over = true;
    weft_block_enter();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    weft_block_leave();
    munmap(world.page, PAGE);
}

static int times_lost(useconds_t after, int tries)
{
    int times = 0;
    world.after = after;
    for (int i = 0; i < tries; i++) {
        long lost = 0;
        CHECK_EQ(run_with_own_quantum(&(weft_config){.procs = 1, .quantum = WEFT_NEVER}, wait_for_page, &lost), 0);
        times += lost > 0;
    }
    return times;
}

/* A few times a crowded machine makes it long. */
CASE(who_waits_for_a_page_keeps_its_processor)
{
    if (check_under_tsan() || !open_world())
        return;
    int times = times_lost(BRIEFLY, TRIES);
    CHECK(times <= TRIES / 4);
    close(world.fd);
}

CASE(who_waits_for_one_for_long_lets_others_run)
{
    if (check_under_tsan() || !open_world())
        return;
    CHECK_EQ(times_lost(LONG, 3), 3);
    close(world.fd);
}
