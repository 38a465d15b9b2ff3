/* SPDX-License-Identifier: MIT */
/*
 * Calls that Weft has no form of that parks: libc's, in a blocking region. The goroutine's thread waits in the kernel, and its
 * processor goes on without it.
 */
#include "shim.h"
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

/* What it returns and errno stay libc's. A call that cannot wait is passed on. */
#define IN_REGION_UNLESS(at_once, type, name, params, args)                                  \
    WEFT_API type name params                                                                \
    {                                                                                        \
        return !(at_once) && w_parks() ? W_IN_REGION(W_REAL(name) args) : W_REAL(name) args; \
    }
#define IN_REGION(type, name, params, args) IN_REGION_UNLESS(false, type, name, params, args)

/* ---- files ------------------------------------------------------------------------------------------------------ */

/* The mode is there if the flags say so. */
#define MODE_AFTER(flags)                                          \
    ({                                                             \
        mode_t mode_ = 0;                                          \
        if ((flags)&O_CREAT || ((flags)&O_TMPFILE) == O_TMPFILE) { \
            va_list ap_;                                           \
            va_start(ap_, flags);                                  \
            mode_ = va_arg(ap_, mode_t);                           \
            va_end(ap_);                                           \
        }                                                          \
        mode_;                                                     \
    })

/* For the other end of a FIFO, for a device or for a lease. */
static bool waits(int flags)
{
    return !(flags & O_NONBLOCK);
}

WEFT_API int open(const char *path, int flags, ...)
{
    mode_t mode = MODE_AFTER(flags);
    return waits(flags) && w_parks() ? W_IN_REGION(W_REAL(open)(path, flags, mode)) : W_REAL(open)(path, flags, mode);
}

WEFT_API int openat(int at, const char *path, int flags, ...)
{
    mode_t mode = MODE_AFTER(flags);
    return waits(flags) && w_parks() ? W_IN_REGION(W_REAL(openat)(at, path, flags, mode))
                                     : W_REAL(openat)(at, path, flags, mode);
}

W_ALIAS(open64, open)
W_ALIAS(openat64, openat)

/* Called where the compiler saw no mode. */
WEFT_API int __open_2(const char *path, int flags)
{
    return open(path, flags, w_fits(flags & O_CREAT, 0));
}

WEFT_API int __openat_2(int at, const char *path, int flags)
{
    return openat(at, path, flags, w_fits(flags & O_CREAT, 0));
}

W_ALIAS(__open64_2, __open_2)
W_ALIAS(__openat64_2, __openat_2)

IN_REGION(int, creat, (const char *path, mode_t mode), (path, mode))
IN_REGION(int, fsync, (int fd), (fd))
IN_REGION(int, fdatasync, (int fd), (fd))
IN_REGION(int, syncfs, (int fd), (fd))
IN_REGION(int, sync_file_range, (int fd, off64_t offset, off64_t n, unsigned flags), (fd, offset, n, flags))
IN_REGION_UNLESS(!(flags & MS_SYNC), int, msync, (void *at, size_t size, int flags), (at, size, flags))
IN_REGION_UNLESS((operation & (LOCK_NB | LOCK_UN)) != 0, int, flock, (int fd, int operation), (fd, operation))
IN_REGION_UNLESS(operation != F_LOCK, int, lockf, (int fd, int operation, off_t size), (fd, operation, size))
W_ALIAS(creat64, creat)
W_ALIAS(lockf64, lockf)

IN_REGION(ssize_t, preadv, (int fd, const struct iovec *iov, int n, off_t offset), (fd, iov, n, offset))
IN_REGION(ssize_t, pwritev, (int fd, const struct iovec *iov, int n, off_t offset), (fd, iov, n, offset))
IN_REGION_UNLESS((flags & RWF_NOWAIT) != 0, ssize_t, preadv2,
                 (int fd, const struct iovec *iov, int n, off_t offset, int flags), (fd, iov, n, offset, flags))
IN_REGION_UNLESS((flags & RWF_NOWAIT) != 0, ssize_t, pwritev2,
                 (int fd, const struct iovec *iov, int n, off_t offset, int flags), (fd, iov, n, offset, flags))
W_ALIAS(preadv64, preadv)
W_ALIAS(pwritev64, pwritev)
W_ALIAS(preadv64v2, preadv2)
W_ALIAS(pwritev64v2, pwritev2)

IN_REGION(ssize_t, sendfile, (int to, int from, off_t *offset, size_t n), (to, from, offset, n))
IN_REGION(ssize_t, splice, (int from, off64_t *at, int to, off64_t *to_at, size_t n, unsigned flags),
          (from, at, to, to_at, n, flags))
IN_REGION(ssize_t, copy_file_range, (int from, off64_t *at, int to, off64_t *to_at, size_t n, unsigned flags),
          (from, at, to, to_at, n, flags))
W_ALIAS(sendfile64, sendfile)

/* ---- many messages at once -------------------------------------------------------------------------------------- */

IN_REGION_UNLESS((flags & MSG_DONTWAIT) != 0, int, recvmmsg,
                 (int fd, struct mmsghdr *messages, unsigned n, int flags, struct timespec *ts),
                 (fd, messages, n, flags, ts))
IN_REGION_UNLESS((flags & MSG_DONTWAIT) != 0, int, sendmmsg, (int fd, struct mmsghdr *messages, unsigned n, int flags),
                 (fd, messages, n, flags))

/* ---- names ------------------------------------------------------------------------------------------------------ */

IN_REGION(int, getaddrinfo,
          (const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found),
          (name, service, hints, found))
IN_REGION(int, getnameinfo,
          (const struct sockaddr *address, socklen_t length, char *name, socklen_t name_size, char *service,
           socklen_t service_size, int flags),
          (address, length, name, name_size, service, service_size, flags))
IN_REGION(int, gethostbyname_r,
          (const char *name, struct hostent *host, char *buffer, size_t size, struct hostent **found, int *error),
          (name, host, buffer, size, found, error))
IN_REGION(int, gethostbyname2_r,
          (const char *name, int family, struct hostent *host, char *buffer, size_t size, struct hostent **found,
           int *error),
          (name, family, host, buffer, size, found, error))
IN_REGION(int, gethostbyaddr_r,
          (const void *address, socklen_t length, int family, struct hostent *host, char *buffer, size_t size,
           struct hostent **found, int *error),
          (address, length, family, host, buffer, size, found, error))

/* ---- processes and terminals ------------------------------------------------------------------------------------ */

IN_REGION(pid_t, wait, (int *status), (status))
IN_REGION_UNLESS((options & WNOHANG) != 0, pid_t, wait3, (int *status, int options, struct rusage *usage),
                 (status, options, usage))
IN_REGION_UNLESS((options & WNOHANG) != 0, pid_t, waitpid, (pid_t pid, int *status, int options),
                 (pid, status, options))
IN_REGION_UNLESS((options & WNOHANG) != 0, pid_t, wait4, (pid_t pid, int *status, int options, struct rusage *usage),
                 (pid, status, options, usage))
IN_REGION_UNLESS((options & WNOHANG) != 0, int, waitid, (idtype_t type, id_t id, siginfo_t *info, int options),
                 (type, id, info, options))
IN_REGION(int, system, (const char *command), (command))
IN_REGION(int, tcdrain, (int fd), (fd))
