/* SPDX-License-Identifier: MIT */
/* Files: what was written is read, with io_uring and without, cached or not, by one goroutine or by many. */
#include "io.h"
#include <sys/stat.h>

enum { SIZE = 1 << 20, BLOCK = 4096 };

static char path[64];

/* In a folder on a disk, where there is one. */
static int temporary(int flags)
{
    snprintf(path, sizeof path, "/tmp/weft-file-%d-XXXXXX", (int)getpid());
    int fd = mkostemp(path, O_CLOEXEC | flags);
    CHECK(fd >= 0);
    return fd;
}

/* With the bytes of stream 1 in it. */
static int filled(size_t size)
{
    int fd = temporary(0);
    uint8_t *data = malloc(size);
    write_bytes(data, size, 1, 0);
    CHECK_EQ(write(fd, data, size), size);
    CHECK_EQ(fsync(fd), 0);
    free(data);
    return fd;
}

static void drop(int fd)
{
    CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
}

static void done_with(int fd)
{
    CHECK_EQ(close(fd), 0);
    unlink(path);
}

/* The case's run with 1, 2 and 8 Ps, with io_uring and without. */
static void each_way(weft_fn *fn, void *arg)
{
    for (int ring = 0; ring < 2; ring++) {
        setenv("WEFT_URING", ring ? "1" : "0", 1);
        EACH_PROCS(p) CHECK_EQ(run_on(p, fn, arg), 0);
    }
    unsetenv("WEFT_URING");
}

/* ---- one goroutine ---------------------------------------------------------------------------------------------- */

static void read_all(int fd)
{
    uint8_t *data = malloc(SIZE + 10);
    for (int cold = 0; cold < 3; cold++) {
        if (cold)
            drop(fd);
        if (cold == 2) /* only a part is cached */
            CHECK_EQ(pread(fd, data, 5000, SIZE / 2), 5000);
        CHECK_EQ(weft_pread(fd, data, SIZE + 10, 0), SIZE); /* up to the end */
        bytes_are_right(data, SIZE, 1, 0);
        drop(fd);
        CHECK_EQ(weft_pread(fd, data, 1000, SIZE - 10), 10);
        bytes_are_right(data, 10, 1, SIZE - 10);
        CHECK_EQ(weft_pread(fd, data, 1000, SIZE), 0);
        CHECK_EQ(weft_pread(fd, data, 1000, SIZE * 10ll), 0);
        CHECK_EQ(weft_pread(fd, data, 0, 0), 0);
    }
    free(data);
}

static void pread_main(void *arg)
{
    read_all(*(int *)arg);
}

CASE(what_is_in_a_file_is_read)
{
    int fd = filled(SIZE);
    each_way(pread_main, &fd);
    done_with(fd);
}

static void position_main(void *arg)
{
    int fd = *(int *)arg;
    uint8_t *data = malloc(SIZE);
    uint64_t rng = 3;
    for (int cold = 0; cold < 2; cold++) {
        size_t at = 0;
        ssize_t n;
        CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
        if (cold)
            drop(fd);
        while ((n = weft_read(fd, data, 1 + check_random(&rng) % 50000)) > 0) {
            bytes_are_right(data, (size_t)n, 1, at);
            at += (size_t)n;
        }
        CHECK_EQ(n, 0);
        CHECK_EQ(at, SIZE);
        CHECK_EQ(weft_read(fd, data, 10), 0);
        CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE);
    }
    free(data);
}

CASE(a_file_is_read_from_where_it_stands)
{
    int fd = filled(SIZE);
    each_way(position_main, &fd);
    done_with(fd);
}

static void vector_main(void *arg)
{
    int fd = *(int *)arg;
    static uint8_t a[7000], b[100], c[50000];
    struct iovec iov[] = {{a, sizeof a}, {NULL, 0}, {b, sizeof b}, {c, sizeof c}};
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    drop(fd);
    CHECK_EQ(weft_readv(fd, iov, 4), sizeof a + sizeof b + sizeof c);
    bytes_are_right(a, sizeof a, 1, 0);
    bytes_are_right(b, sizeof b, 1, sizeof a);
    bytes_are_right(c, sizeof c, 1, sizeof a + sizeof b);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(weft_writev(fd, iov, 4), sizeof a + sizeof b + sizeof c);
    read_all(fd);
}

CASE(vectors_go_to_files)
{
    int fd = filled(SIZE);
    each_way(vector_main, &fd);
    done_with(fd);
}

static void write_main(void *arg)
{
    int fd = temporary(0);
    uint8_t *data = malloc(SIZE);
    (void)arg;
    write_bytes(data, SIZE, 1, 0);
    CHECK_EQ(weft_write(fd, data, 1000), 1000);
    CHECK_EQ(weft_write(fd, data + 1000, SIZE / 2 - 1000), SIZE / 2 - 1000);
    CHECK_EQ(weft_pwrite(fd, data + SIZE / 2, SIZE / 2, SIZE / 2), SIZE / 2);
    CHECK_EQ(lseek(fd, 0, SEEK_CUR), SIZE / 2); /* which pwrite leaves alone */
    CHECK_EQ(weft_fsync(fd), 0);
    read_all(fd);
    CHECK_EQ(weft_pwrite(fd, "x", 1, SIZE + 100), 1); /* a hole */
    CHECK_EQ(weft_pread(fd, data, 1000, SIZE), 101);
    CHECK(data[0] == 0 && data[99] == 0 && data[100] == 'x');
    free(data);
    CHECK_EQ(weft_close_fd(fd), 0);
    unlink(path);
}

CASE(what_is_written_to_a_file_is_there)
{
    each_way(write_main, NULL);
}

static void open_main(void *arg)
{
    int first = temporary(0);
    char text[8];
    (void)arg;
    close(first);
    int fd = weft_open(path, O_WRONLY | O_APPEND, 0);
    CHECK(fd >= 0);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(weft_write(fd, "abc", 3), 3);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(weft_write(fd, "def", 3), 3); /* at the end all the same */
    CHECK_EQ(weft_read(fd, text, 1), -EBADF);
    CHECK_EQ(weft_close_fd(fd), 0);
    fd = weft_open(path, O_RDONLY, 0);
    CHECK_EQ(weft_read(fd, text, 8), 6);
    CHECK(memcmp(text, "abcdef", 6) == 0);
    CHECK_EQ(weft_write(fd, text, 1), -EBADF);
    CHECK_EQ(weft_pwrite(fd, text, 1, 0), -EBADF);
    CHECK_EQ(weft_wait_fd(fd, POLLIN | POLLOUT), POLLIN | POLLOUT);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_open(path, O_RDWR | O_CREAT | O_EXCL, 0600), -EEXIST);
    unlink(path);
    fd = weft_open(path, O_RDWR | O_CREAT | O_EXCL, 0640);
    struct stat st;
    CHECK(fd >= 0 && fstat(fd, &st) == 0 && (st.st_mode & 0700) == 0600);
    CHECK_EQ(weft_close_fd(fd), 0);
    unlink(path);
}

CASE(files_are_opened)
{
    each_way(open_main, NULL);
}

/* ---- without the page cache ------------------------------------------------------------------------------------- */

static void direct_main(void *arg)
{
    int fd = weft_open(path, O_RDWR | O_DIRECT, 0);
    uint8_t *data = aligned_alloc(BLOCK, SIZE);
    (void)arg;
    if (fd < 0) {
        CHECK_EQ(fd, -EINVAL); /* this file system has no such way */
        free(data);
        return;
    }
    CHECK_EQ(weft_pread(fd, data, SIZE, 0), SIZE);
    bytes_are_right(data, SIZE, 1, 0);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(weft_pwrite(fd, data + i * BLOCK, BLOCK, (off_t)i * BLOCK), BLOCK);
    memset(data, 0, SIZE);
    for (int i = 0; i < 16; i++)
        CHECK_EQ(weft_read(fd, data + i * BLOCK, BLOCK), BLOCK);
    bytes_are_right(data, 16 * BLOCK, 1, 0);
    CHECK_EQ(weft_pread(fd, data, BLOCK, SIZE), 0);
    CHECK_EQ(weft_fsync(fd), 0);
    CHECK_EQ(weft_close_fd(fd), 0);
    free(data);
}

CASE(files_are_read_and_written_past_the_cache)
{
    int fd = filled(SIZE);
    each_way(direct_main, NULL);
    done_with(fd);
}

/* ---- many goroutines -------------------------------------------------------------------------------------------- */

struct many {
    int fd, direct;
    int each;
    weft_wg ended;
    _Atomic int number;
};

static void read_here_and_there(void *arg)
{
    struct many *m = arg;
    uint64_t rng = (uint64_t)m->number++ * 977 + 1;
    uint8_t buffer[2 * BLOCK], *block = (uint8_t *)(((uintptr_t)buffer + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1));
    for (int i = 0; i < m->each; i++) {
        if (m->direct >= 0 && check_random(&rng) % 2) {
            off_t at = (off_t)(check_random(&rng) % (SIZE / BLOCK)) * BLOCK;
            CHECK_EQ(weft_pread(m->direct, block, BLOCK, at), BLOCK);
            bytes_are_right(block, BLOCK, 1, (uint64_t)at);
        } else {
            off_t at = (off_t)(check_random(&rng) % (SIZE - BLOCK));
            CHECK_EQ(weft_pread(m->fd, buffer, BLOCK, at), BLOCK);
            bytes_are_right(buffer, BLOCK, 1, (uint64_t)at);
        }
        if (check_random(&rng) % 64 == 0)
            drop(m->fd);
    }
    weft_wg_done(&m->ended);
}

static void many_main(void *arg)
{
    int fd = *(int *)arg, n = scaled(200);
    struct many m = {.fd = fd, .direct = weft_open(path, O_RDONLY | O_DIRECT, 0), .each = scaled(50)};
    weft_wg_add(&m.ended, n);
    for (int i = 0; i < n; i++)
        CHECK_EQ(weft_go(read_here_and_there, &m), 0);
    CHECK_EQ(weft_wg_wait(&m.ended), 0);
    if (m.direct >= 0)
        CHECK_EQ(weft_close_fd(m.direct), 0);
}

CASE(many_read_one_file)
{
    int fd = filled(SIZE);
    each_way(many_main, &fd);
    done_with(fd);
}

/* More calls at once than a ring has places for what has ended. */
static void one_direct_read(void *arg)
{
    struct many *m = arg;
    uint8_t buffer[2 * BLOCK], *block = (uint8_t *)(((uintptr_t)buffer + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1));
    off_t at = m->number++ % (SIZE / BLOCK) * BLOCK;
    CHECK_EQ(weft_pread(m->direct, block, BLOCK, at), BLOCK);
    bytes_are_right(block, BLOCK, 1, (uint64_t)at);
    weft_wg_done(&m->ended);
}

static void flood_main(void *arg)
{
    struct many m = {.direct = *(int *)arg};
    int n = scaled(5000);
    for (int round = 0; round < 3; round++) {
        m.number = 0;
        weft_wg_add(&m.ended, n);
        for (int i = 0; i < n; i++)
            CHECK_EQ(weft_go(one_direct_read, &m), 0);
        CHECK_EQ(weft_wg_wait(&m.ended), 0);
    }
}

/* In memory, where a read past the cache ends at once, and on the disk. */
CASE(thousands_read_at_once)
{
    static const char *const FOLDERS[] = {"/dev/shm", "/tmp"};
    uint8_t *data = malloc(SIZE);
    write_bytes(data, SIZE, 1, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/weft-file-%d-XXXXXX", FOLDERS[i], (int)getpid());
        int fd = mkostemp(path, O_CLOEXEC), direct = fd < 0 ? -1 : open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
        if (direct >= 0) {
            CHECK_EQ(write(fd, data, SIZE), SIZE);
            CHECK_EQ(fsync(fd), 0);
            each_way(flood_main, &direct);
            close(direct);
        } else {
            skipped("a file system without O_DIRECT");
        }
        if (fd >= 0)
            done_with(fd);
    }
    free(data);
}

static void append_records(void *arg)
{
    struct many *m = arg;
    int me = m->number++, record[16];
    for (int i = 0; i < 16; i++)
        record[i] = me;
    for (int i = 0; i < m->each; i++)
        CHECK_EQ(weft_write(m->fd, record, sizeof record), sizeof record);
    weft_wg_done(&m->ended);
}

static void append_main(void *arg)
{
    enum { WRITERS = 20 };
    struct many m = {.fd = temporary(O_APPEND), .each = scaled(100)};
    int counts[WRITERS] = {0}, record[16];
    (void)arg;
    weft_wg_add(&m.ended, WRITERS);
    for (int i = 0; i < WRITERS; i++)
        CHECK_EQ(weft_go(append_records, &m), 0);
    CHECK_EQ(weft_wg_wait(&m.ended), 0);
    CHECK_EQ(lseek(m.fd, 0, SEEK_SET), 0);
    while (weft_read(m.fd, record, sizeof record) == sizeof record) {
        CHECK(record[0] >= 0 && record[0] < WRITERS && record[0] == record[15]); /* whole ones */
        counts[record[0] % WRITERS]++;
    }
    for (int i = 0; i < WRITERS; i++)
        CHECK_EQ(counts[i], m.each);
    done_with(m.fd);
}

CASE(what_many_append_is_all_there)
{
    each_way(append_main, NULL);
}

/* Through one position: each part is read by one. */
static void read_in_turn(void *arg)
{
    struct many *m = arg;
    uint8_t block[BLOCK];
    while (weft_read(m->fd, block, BLOCK) == BLOCK) {
        uint32_t number;
        memcpy(&number, block, sizeof number);
        CHECK(number < SIZE / BLOCK);
        m->number++;
        ((_Atomic int *)(m + 1))[number % (SIZE / BLOCK)]++;
    }
    weft_wg_done(&m->ended);
}

static void turns_main(void *arg)
{
    int fd = *(int *)arg;
    struct many *m = calloc(1, sizeof *m + SIZE / BLOCK * sizeof(int));
    *m = (struct many){.fd = fd};
    drop(fd);
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    weft_wg_add(&m->ended, 10);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(read_in_turn, m), 0);
    CHECK_EQ(weft_wg_wait(&m->ended), 0);
    CHECK_EQ(m->number, SIZE / BLOCK);
    for (int i = 0; i < SIZE / BLOCK; i++)
        CHECK_EQ(((_Atomic int *)(m + 1))[i], 1);
    free(m);
}

CASE(a_position_that_many_share_gives_each_part_once)
{
    int fd = temporary(0);
    for (uint32_t i = 0; i < SIZE / BLOCK; i++) {
        uint8_t block[BLOCK] = {0};
        memcpy(block, &i, sizeof i);
        CHECK_EQ(write(fd, block, BLOCK), BLOCK);
    }
    CHECK_EQ(fsync(fd), 0);
    each_way(turns_main, &fd);
    done_with(fd);
}

/* ---- ends ------------------------------------------------------------------------------------------------------- */

/* The main goroutine ends while the kernel has buffers on the stacks of others: the next run's stacks are left alone. */
static void read_for_ever(void *arg)
{
    struct many *m = arg;
    uint64_t rng = (uint64_t)m->number++ * 31 + 1;
    uint8_t buffer[2 * BLOCK], *block = (uint8_t *)(((uintptr_t)buffer + BLOCK - 1) & ~(uintptr_t)(BLOCK - 1));
    for (;;) {
        off_t at = (off_t)(check_random(&rng) % (SIZE / BLOCK)) * BLOCK;
        CHECK_EQ(weft_pread(m->direct >= 0 ? m->direct : m->fd, block, BLOCK, at), BLOCK);
        bytes_are_right(block, BLOCK, 1, (uint64_t)at);
        if (m->direct < 0)
            drop(m->fd);
    }
}

static void watch_own_stack(void *arg)
{
    struct many *m = arg;
    volatile uint8_t mine[2 * BLOCK];
    for (size_t i = 0; i < sizeof mine; i++)
        mine[i] = 0x5a;
    for (int i = 0; i < 20; i++)
        weft_yield();
    for (size_t i = 0; i < sizeof mine; i++)
        if (mine[i] != 0x5a) {
            check_fail(__FILE__, __LINE__, "somebody wrote to a stack that was not its");
            break;
        }
    weft_wg_done(&m->ended);
}

static void end_main(void *arg)
{
    static struct many m;
    m = (struct many){.fd = ((int *)arg)[0], .direct = ((int *)arg)[1]};
    weft_wg_add(&m.ended, 50);
    for (int i = 0; i < 50; i++)
        CHECK_EQ(weft_go(watch_own_stack, &m), 0);
    CHECK_EQ(weft_wg_wait(&m.ended), 0);
    for (int i = 0; i < 50; i++)
        CHECK_EQ(weft_go(read_for_ever, &m), 0);
    CHECK_EQ(weft_sleep(2 * WEFT_MSEC), 0);
}

CASE(a_run_may_end_while_files_are_read)
{
    int fd[2] = {filled(SIZE)};
    fd[1] = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    for (int i = 0; i < 5; i++)
        each_way(end_main, fd);
    if (fd[1] >= 0)
        close(fd[1]);
    done_with(fd[0]);
}

/* A scope that is over does not take the buffer from the kernel: the read is done, or was not begun. */
static void cut_reads_main(void *arg)
{
    int fd = ((int *)arg)[1] >= 0 ? ((int *)arg)[1] : ((int *)arg)[0];
    uint8_t *data = aligned_alloc(BLOCK, SIZE);
    for (int i = 0; i < scaled(100); i++) {
        weft_scope s;
        drop(((int *)arg)[0]);
        memset(data, 0x77, SIZE);
        CHECK_EQ(weft_scope_open(&s, weft_now() + i % 10 * 20 * WEFT_USEC), 0);
        ssize_t n = weft_pread(fd, data, SIZE, 0);
        weft_scope_close(&s);
        CHECK(n > 0 || n == -ETIMEDOUT);
        size_t got = n > 0 ? (size_t)n : 0;
        bytes_are_right(data, got, 1, 0);
        memset(data, 0x66, SIZE); /* ours again */
        weft_sleep(100 * WEFT_USEC);
        for (size_t k = 0; k < SIZE; k += 512)
            if (data[k] != 0x66) {
                check_fail(__FILE__, __LINE__, "the kernel wrote to a buffer after the call had ended");
                break;
            }
    }
    free(data);
}

CASE(a_cut_does_not_return_before_the_kernel_is_done)
{
    int fd[2] = {filled(SIZE)};
    fd[1] = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
    each_way(cut_reads_main, fd);
    if (fd[1] >= 0)
        close(fd[1]);
    done_with(fd[0]);
}

/* ---- closes and threads ----------------------------------------------------------------------------------------- */

/* A number that nobody gets by chance after it is closed: a reader that comes late finds nothing there. */
static int open_high(void)
{
    int low = weft_open(path, O_RDONLY, 0), high = fcntl(low, F_DUPFD_CLOEXEC, 500);
    CHECK_EQ(weft_close_fd(low), 0);
    return high;
}

static void closed_main(void *arg)
{
    uint8_t *data = aligned_alloc(BLOCK, SIZE);
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        struct one_call c = {.fn = call_read};
        c.fd = open_high();
        drop(c.fd);
        weft_wg_add(&c.ended, 1);
        CHECK_EQ(weft_go(one_call_main, &c), 0);
        weft_yield();
        CHECK_EQ(weft_close_fd(c.fd), 0); /* waits for who is inside */
        long n = call_end(&c);
        CHECK(n == -EBADF || n == sizeof c.text);
        if (n > 0)
            bytes_are_right((uint8_t *)c.text, (size_t)n, 1, 0);
    }
    free(data);
}

CASE(a_file_may_be_closed_while_it_is_read)
{
    int fd = filled(SIZE);
    each_way(closed_main, NULL);
    done_with(fd);
}

static void *read_in_thread(void *arg)
{
    read_all(*(int *)arg);
    CHECK_EQ(weft_fsync(*(int *)arg), 0);
    return NULL;
}

static void thread_main(void *arg)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, read_in_thread, arg), 0);
    join_in_region(threads, 3);
}

CASE(foreign_threads_read_files)
{
    int fd = filled(SIZE);
    each_way(thread_main, &fd);
    done_with(fd);
}

/* ---- others run ------------------------------------------------------------------------------------------------- */

static _Atomic bool over;
static _Atomic long beats;

static void beat(void *arg)
{
    (void)arg;
    for (; !over; beats++)
        weft_yield();
}

static void fifo_writer(void *arg)
{
    int fd = weft_open(arg, O_WRONLY, 0); /* waits for a reader */
    CHECK(fd >= 0);
    CHECK_EQ(weft_write(fd, "x", 1), 1);
    CHECK_EQ(weft_close_fd(fd), 0);
}

/* An open that waits, for the other side of a FIFO: the others run meanwhile. */
static void fifo_main(void *arg)
{
    char name[64], c;
    (void)arg;
    snprintf(name, sizeof name, "/tmp/weft-fifo-%d", (int)getpid());
    unlink(name);
    CHECK_EQ(mkfifo(name, 0600), 0);
    over = false;
    beats = 0;
    CHECK_EQ(weft_go(beat, NULL), 0);
    CHECK_EQ(weft_go(fifo_writer, name), 0);
    while (beats < 1000)
        weft_yield();
    int fd = weft_open(name, O_RDONLY, 0);
    CHECK_EQ(weft_read(fd, &c, 1), 1);
    CHECK_EQ(weft_read(fd, &c, 1), 0);
    CHECK_EQ(weft_close_fd(fd), 0);
    over = true;
    CHECK(others_have_ended());
    unlink(name);
}

CASE(an_open_may_wait_for_another)
{
    each_way(fifo_main, NULL);
}
