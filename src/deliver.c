/* SPDX-License-Identifier: MIT */
/*
 * Writing to what the user has named, for traces and profiles. That may be a pipe, and who reads it may stop reading without closing it: a
 * write would sleep in the kernel for ever, and so would the run, whose end waits for the file. So the descriptor is opened with O_NONBLOCK,
 * which a file does not mind, and what takes nothing is waited for with poll.
 *
 * While nobody is in a hurry there is no limit: a reader may be slow, and tapes that are full do no harm. Otherwise it may pause for
 * PATIENCE, again after each piece that it takes: a slow one gets all of it.
 *
 * Takes no lock and no memory: the flight recorder does this in a handler.
 */
#include "sys_io.h"
#include "weft_internal.h"

static const int64_t PATIENCE = 3 * WEFT_SEC; /* a disk that has fallen asleep takes two seconds to spin up */
static const int64_t LOOK = 50 * WEFT_MSEC;   /* has somebody got into a hurry meanwhile? */

int w_deliver(int fd, const char *data, size_t n, bool (*hurried)(void))
{
    int64_t since = 0; /* it has taken nothing; 0: it has */
    while (n > 0) {
        long r = w_sys_write(fd, &(struct iovec){(void *)data, n}, 1, -1);
        if (r > 0) {
            data += r;
            n -= (size_t)r;
            since = 0;
        } else if (r == -EAGAIN) {
            if (since == 0 || (hurried != NULL && !hurried()))
                since = w_now();
            else if (w_now() - since > PATIENCE)
                return -ETIMEDOUT;
            w_sys_takes(fd, LOOK);
        } else if (r != -EINTR) {
            return r < 0 ? (int)r : -EIO;
        }
    }
    return 0;
}
