/* SPDX-License-Identifier: MIT */
/* Connections, batches of messages and names through libweft_posix. */
#include "pairs.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <sys/uio.h>
#include <time.h>

/* ---- connections ------------------------------------------------------------------------------------------------ */

/* In fds[0], of the family in data. */
static int listener(int family, struct sockaddr_storage *at, socklen_t *n)
{
    int fd = socket(family, SOCK_STREAM, 0);
    *at = (struct sockaddr_storage){.ss_family = (sa_family_t)family};
    if (family == AF_INET)
        ((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(bind(fd, (struct sockaddr *)at, family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa_family_t)), 0);
    CHECK_EQ(listen(fd, 64), 0);
    *n = sizeof *at;
    CHECK_EQ(getsockname(fd, (struct sockaddr *)at, n), 0);
    return fd;
}

static void with_listener(struct pair *p, int family)
{
    struct sockaddr_storage at;
    socklen_t n;
    p->fds[0] = listener(family, &at, &n);
    p->fds[1] = socket(family, SOCK_STREAM, 0);
}

static void with_tcp(struct pair *p)
{
    with_listener(p, AF_INET);
}

static void with_local(struct pair *p)
{
    with_listener(p, AF_UNIX);
}

static void wait_accept(struct pair *p)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = accept(p->fds[0], (struct sockaddr *)&from, &n);
    CHECK(fd >= 0 && is_blocking(fd) && n > 0);
    CHECK_EQ(read(fd, p->data, sizeof p->data), 2);
    CHECK_EQ(write(fd, "ok", 2), 2);
    close(fd);
}

static void feed_connect(struct pair *p)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char text[2];
    CHECK_EQ(getsockname(p->fds[0], (struct sockaddr *)&at, &n), 0);
    CHECK_EQ(connect(p->fds[1], (struct sockaddr *)&at, n), 0);
    CHECK(is_blocking(p->fds[1]));
    CHECK_EQ(write(p->fds[1], "hi", 2), 2);
    CHECK_EQ(read(p->fds[1], text, 2), 2);
}

CASE(accept_and_connect_park)
{
    each_way(&(struct kind){with_tcp, wait_accept, feed_connect});
    each_way(&(struct kind){with_local, wait_accept, feed_connect});
}

static void wait_accept4(struct pair *p)
{
    int fd = accept4(p->fds[0], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    CHECK(fd >= 0 && !is_blocking(fd) && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    fcntl(fd, F_SETFL, 0);
    CHECK_EQ(read(fd, p->data, sizeof p->data), 2);
    CHECK_EQ(write(fd, "ok", 2), 2);
    close(fd);
}

CASE(accept4_knows_its_flags)
{
    each_way(&(struct kind){with_tcp, wait_accept4, feed_connect});
}

/* Many accept from the same blocking listener; everybody gets one. */
enum { ACCEPTORS = 20 };

struct door {
    int fd;
    struct sockaddr_storage at;
    socklen_t n;
    weft_wg all;
};

static void accepts_one(void *arg)
{
    struct door *door = arg;
    char c;
    int fd = accept(door->fd, NULL, NULL);
    CHECK(fd >= 0);
    CHECK_EQ(read(fd, &c, 1), 1);
    close(fd);
    weft_wg_done(&door->all);
}

static void connects_one(void *arg)
{
    struct door *door = arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(connect(fd, (struct sockaddr *)&door->at, door->n), 0);
    CHECK_EQ(write(fd, "x", 1), 1);
    close(fd);
    weft_wg_done(&door->all);
}

static void door_main(void *arg)
{
    struct door door = {0};
    (void)arg;
    door.fd = listener(AF_INET, &door.at, &door.n);
    weft_wg_add(&door.all, 2 * ACCEPTORS);
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK_EQ(weft_go(accepts_one, &door), 0);
    for (int i = 0; i < ACCEPTORS; i++)
        CHECK_EQ(weft_go(connects_one, &door), 0);
    CHECK_EQ(weft_wg_wait(&door.all), 0);
    CHECK(check_threads() <= weft_procs(0) + SPARE_THREADS);
    close(door.fd);
}

CASE(many_may_accept_from_one_listener)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, door_main, NULL), 0);
}

/* Beside a plain thread, which may be faster: whoever accepts waits until there is one for him. */
enum { GUESTS = 2000, DOORMEN = 4 };

static struct door shared_door;
static _Atomic bool last_guest;
static _Atomic int doormen, turned_away;

static void *accepts_many(void *arg)
{
    while (!last_guest) {
        int fd = accept(shared_door.fd, NULL, NULL);
        turned_away += fd < 0;
        if (fd >= 0)
            close(fd);
    }
    doormen--;
    return arg;
}

static void accepts_many_in_a_goroutine(void *arg)
{
    accepts_many(arg);
}

/* flags: SOCK_NONBLOCK if there may be nobody left who accepts: where many wait already one more makes no difference. */
static void visit(int flags)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | flags, 0);
    int r = connect(fd, (struct sockaddr *)&shared_door.at, shared_door.n);
    CHECK(r == 0 || (flags != 0 && errno == EAGAIN));
    close(fd);
}

static void *visits_many(void *arg)
{
    for (int i = 0; i < GUESTS; i++)
        visit(0);
    last_guest = true;
    for (; doormen > 0; usleep(1000))
        visit(SOCK_NONBLOCK);
    return arg;
}

static void shared_door_main(void *arg)
{
    pthread_t threads[2];
    (void)arg;
    shared_door.fd = listener(AF_UNIX, &shared_door.at, &shared_door.n);
    last_guest = false;
    turned_away = 0;
    doormen = DOORMEN + 1;
    for (int i = 0; i < DOORMEN; i++)
        CHECK_EQ(weft_go(accepts_many_in_a_goroutine, NULL), 0);
    CHECK_EQ(pthread_create(&threads[0], NULL, accepts_many, NULL), 0);
    CHECK_EQ(pthread_create(&threads[1], NULL, visits_many, NULL), 0);
    join_in_region(threads, 2);
    CHECK(others_have_ended());
    CHECK_EQ(turned_away, 0);
    CHECK(is_blocking(shared_door.fd));
    close(shared_door.fd);
}

CASE(others_may_accept_from_it_too)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, shared_door_main, NULL), 0);
}

static void refused(void)
{
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(AF_INET, &at, &n), other = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(accept(other, NULL, NULL), EINVAL);
    CHECK_ERRNO(accept(-1, NULL, NULL), EBADF);
    CHECK_ERRNO(connect(other, NULL, 0), EINVAL);
    close(fd);
    CHECK_ERRNO(connect(other, (struct sockaddr *)&at, n), ECONNREFUSED);
    CHECK(is_blocking(other));
    close(other);
}

CASE(connections_may_be_refused)
{
    inside_and_outside(refused);
}

/* A limit of 30 ms. */
static void limit(int fd, int option)
{
    struct timeval tv = {.tv_usec = 30000};
    CHECK_EQ(setsockopt(fd, SOL_SOCKET, option, &tv, sizeof tv), 0);
}

static void limited_accept(void)
{
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(AF_INET, &at, &n);
    limit(fd, SO_RCVTIMEO);
    CHECK_ERRNO(accept(fd, NULL, NULL), EAGAIN);
    CHECK_ERRNO(accept4(fd, NULL, NULL, 0), EAGAIN);
    CHECK(is_blocking(fd));
    close(fd);
}

CASE(accept_knows_the_sockets_limit)
{
    inside_and_outside(limited_accept);
}

/* Nobody accepts, and the queue of the listener is full: who else connects has to wait. */
static void limited_connect(int family, int err)
{
    enum { TRIES = 8 };
    struct sockaddr_storage at;
    socklen_t n;
    int fd = listener(family, &at, &n), fds[TRIES], i, r = 0;
    CHECK_EQ(listen(fd, 0), 0);
    for (i = 0; i < TRIES && r == 0; i++) {
        fds[i] = socket(family, SOCK_STREAM, 0);
        limit(fds[i], SO_SNDTIMEO);
        r = connect(fds[i], (struct sockaddr *)&at, n);
    }
    CHECK_EQ(r, -1);
    CHECK_EQ(errno_of_now(), err);
    CHECK(is_blocking(fds[i - 1]));
    while (i > 0)
        close(fds[--i]);
    close(fd);
}

static void limited_connects(void)
{
    limited_connect(AF_INET, EINPROGRESS);
    limited_connect(AF_UNIX, EAGAIN);
}

CASE(connect_knows_the_sockets_limit)
{
    inside_and_outside(limited_connects);
}

/* ---- many messages at once -------------------------------------------------------------------------------------- */

static void batches(void)
{
    int fds[2];
    char text[2][4] = {{0}};
    struct iovec from[2] = {{"one", 3}, {"two", 3}}, to[2] = {{text[0], 4}, {text[1], 4}};
    struct mmsghdr out[2] = {{.msg_hdr = {.msg_iov = &from[0], .msg_iovlen = 1}},
                             {.msg_hdr = {.msg_iov = &from[1], .msg_iovlen = 1}}};
    struct mmsghdr in[2] = {{.msg_hdr = {.msg_iov = &to[0], .msg_iovlen = 1}},
                            {.msg_hdr = {.msg_iov = &to[1], .msg_iovlen = 1}}};
    CHECK_EQ(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), 0);
    CHECK_EQ(sendmmsg(fds[1], out, 2, 0), 2);
    CHECK_EQ(recvmmsg(fds[0], in, 2, 0, NULL), 2);
    CHECK(memcmp(text[0], "one", 3) == 0 && memcmp(text[1], "two", 3) == 0);
    close(fds[0]);
    close(fds[1]);
}

CASE(messages_go_in_batches)
{
    inside_and_outside(batches);
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

static void names(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    char name[64], service[16];
    CHECK_EQ(getaddrinfo("127.0.0.1", "80", &hints, &found), 0);
    CHECK(found != NULL && ((struct sockaddr_in *)found->ai_addr)->sin_port == htons(80));
    CHECK_EQ(getnameinfo(found->ai_addr, found->ai_addrlen, name, sizeof name, service, sizeof service,
                         NI_NUMERICHOST | NI_NUMERICSERV),
             0);
    CHECK(strcmp(name, "127.0.0.1") == 0 && strcmp(service, "80") == 0);
    freeaddrinfo(found);
    struct hostent host, *result = NULL;
    char buffer[1024];
    int error = 0;
    CHECK_EQ(gethostbyname_r("127.0.0.1", &host, buffer, sizeof buffer, &result, &error), 0);
    CHECK(result != NULL && result->h_addrtype == AF_INET);
    CHECK_EQ(gethostbyname2_r("127.0.0.1", AF_INET, &host, buffer, sizeof buffer, &result, &error), 0);
    CHECK(result != NULL && result->h_length == 4);
    hints.ai_flags = AI_NUMERICHOST;
    CHECK_EQ(getaddrinfo("no number", NULL, &hints, &found), EAI_NONAME);
}

CASE(names_are_looked_up)
{
    inside_and_outside(names);
}
