/* SPDX-License-Identifier: MIT */
/* Files through libweft_posix. */
#include "pairs.h"
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>

static void at_offsets(int fd)
{
    char text[16] = {0};
    struct iovec from[] = {{"ab", 2}, {"cd", 2}}, to[] = {{text, 1}, {text + 1, 3}};
    CHECK_EQ(pwrite(fd, "0123456789", 10, 0), 10);
    CHECK_EQ(pwrite64(fd, "xy", 2, 8), 2);
    CHECK_EQ(pwritev(fd, from, 2, 2), 4);
    CHECK_EQ(preadv(fd, to, 2, 2), 4);
    CHECK(memcmp(text, "abcd", 4) == 0);
    CHECK_EQ(pread(fd, text, 10, 0), 10);
    CHECK_EQ(pread64(fd, text + 10, 2, 8), 2);
    CHECK(memcmp(text, "01abcd67xyxy", 12) == 0);
    CHECK_EQ(preadv2(fd, to, 1, 0, 0), 1);
    CHECK_EQ(pwritev2(fd, from, 1, 0, 0), 2);
}

static void written_and_synced(int fd)
{
    CHECK_EQ(lseek(fd, 0, SEEK_SET), 0);
    CHECK_EQ(write(fd, "one", 3), 3);
    CHECK_EQ(fsync(fd), 0);
    CHECK_EQ(fdatasync(fd), 0);
    CHECK_EQ(flock(fd, LOCK_EX), 0);
    CHECK_EQ(lockf(fd, F_TEST, 0), 0);
    CHECK_EQ(close(fd), 0);
}

static void opened_again(const char *path)
{
    char text[4] = {0};
    int fd = open(path, O_RDONLY);
    CHECK_EQ(fcntl(fd, F_GETFD), 0); /* not close-on-exec unless one asks for it */
    CHECK_EQ(read(fd, text, 3), 3);
    CHECK(memcmp(text, "one", 3) == 0);
    CHECK_EQ(close(fd), 0);
    fd = openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    CHECK_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
    CHECK_EQ(close(fd), 0);
}

static void created_with_a_mode(const char *path)
{
    struct stat st;
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
    CHECK_EQ(fstat(fd, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0600);
    CHECK_EQ(close(fd), 0);
}

static void file_calls(void)
{
    char path[] = "/tmp/weft-posix-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    at_offsets(fd);
    written_and_synced(fd);
    opened_again(path);
    CHECK_EQ(unlink(path), 0);
    CHECK_ERRNO(open(path, O_RDONLY), ENOENT);
    created_with_a_mode(path);
    CHECK_EQ(unlink(path), 0);
}

CASE(files_are_opened_read_and_written)
{
    inside_and_outside(file_calls);
}

/* Opening a fifo waits for the other side. */
static char fifo[64];

static void open_other_side(void *arg)
{
    int fd = open(fifo, O_WRONLY);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    weft_wg_done(arg);
}

static void fifo_main(void *arg)
{
    char c;
    weft_wg other = {0};
    (void)arg;
    snprintf(fifo, sizeof fifo, "/tmp/weft-posix-fifo-%d", (int)getpid());
    CHECK_EQ(mkfifo(fifo, 0600), 0);
    weft_wg_add(&other, 1);
    CHECK_EQ(weft_go(open_other_side, &other), 0);
    int fd = open(fifo, O_RDONLY);
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    CHECK_EQ(weft_wg_wait(&other), 0);
    CHECK_EQ(unlink(fifo), 0);
}

CASE(open_lets_others_run)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, fifo_main, NULL), 0);
}

static int temporary(const char *text)
{
    char path[] = "/tmp/weft-posix-XXXXXX";
    int fd = mkstemp(path);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
    return fd;
}

static void holds(int fd, const char *expected)
{
    char text[64] = {0};
    CHECK_EQ(pread(fd, text, sizeof text, 0), strlen(expected));
    CHECK(strcmp(text, expected) == 0);
}

static void copies(void)
{
    char text[8] = {0};
    int fd = temporary("one two"), other = temporary(""), fds[2], sockets[2];
    off_t at = 0;
    off64_t from = 4;
    CHECK_EQ(pipe(fds), 0);
    CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    CHECK_EQ(sendfile(sockets[1], fd, &at, 7), 7);
    CHECK_EQ(read(sockets[0], text, sizeof text), 7);
    CHECK(memcmp(text, "one two", 7) == 0);
    CHECK_EQ(splice(fd, &from, fds[1], NULL, 3, 0), 3);
    CHECK_EQ(splice(fds[0], NULL, other, NULL, 3, 0), 3);
    holds(other, "two");
    from = 0;
    CHECK_EQ(copy_file_range(fd, &from, other, NULL, 3, 0), 3);
    holds(other, "twoone");
    for (int i = 0; i < 2; i++) {
        close(fds[i]);
        close(sockets[i]);
    }
    close(fd);
    close(other);
}

CASE(the_kernel_copies)
{
    inside_and_outside(copies);
}

static void synced(void)
{
    int fd = temporary("one");
    CHECK_EQ(sync_file_range(fd, 0, 3, SYNC_FILE_RANGE_WRITE), 0);
    void *at = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(at != MAP_FAILED);
    memcpy(at, "two", 3);
    CHECK_EQ(msync(at, 3, MS_SYNC), 0);
    CHECK_EQ(munmap(at, 3), 0);
    holds(fd, "two");
    CHECK_ERRNO(syncfs(-1), EBADF);
    CHECK_ERRNO(tcdrain(fd), ENOTTY);
    close(fd);
}

CASE(files_are_synced)
{
    inside_and_outside(synced);
}

int __open_2(const char *path, int flags);
int __openat64_2(int at, const char *path, int flags);
ssize_t __pread_chk(int fd, void *buffer, size_t size, off_t offset, size_t room);

static void other_names(void)
{
    char path[] = "/tmp/weft-posix-XXXXXX", c[2];
    close(mkstemp(path));
    int fd = creat(path, 0600);
    CHECK_EQ(write(fd, "one", 3), 3);
    close(fd);
    fd = __open_2(path, O_RDONLY);
    CHECK_EQ(__pread_chk(fd, c, 1, 2, sizeof c), 1);
    CHECK_EQ(c[0], 'e');
    close(fd);
    fd = __openat64_2(AT_FDCWD, path, O_RDONLY);
    CHECK(fd >= 0);
    close(fd);
    fd = open64(path, O_RDWR);
    CHECK_EQ(preadv64(fd, &(struct iovec){c, 1}, 1, 1), 1);
    CHECK_EQ(c[0], 'n');
    close(fd);
    CHECK_EQ(unlink(path), 0);
}

CASE(files_by_the_other_names)
{
    inside_and_outside(other_names);
}
