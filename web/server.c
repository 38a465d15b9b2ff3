/* SPDX-License-Identifier: MIT */
/*
 * The live picture's server: a listener, and a goroutine for each connection, all of them services (w_go_service): of high priority,
 * so that they answer while others compute; in no count; and no reason for a run to go on, so a deadlock is still one.
 *
 *      accept ──> a free place ──> attend: request, answer, request, ... ──> the place is free again
 *                                      ^
 *      usher, once a second: whoever has used up its time is shown the door (shutdown), and its calls fail
 *
 * Time and room. A request must be complete ten seconds after its first byte, however slowly the bytes come. When the places run
 * short, a newcomer has one guest shown the door: the one that has been idle for longest; if none is, the one that has been sending its
 * request for longest; never one that is being answered. So nobody can keep others out by just sitting here.
 *
 * One listener after the other. Each has a serial number, and what belongs to it ends with it: a connection that it has accepted gets no
 * place among those of the next, whose token may be another; and its goroutines know its descriptors by their lives (w_fd_know), so that
 * what they still do when weft_http_stop has closed them does not meet whoever has the numbers now.
 *
 * Who may come. On a loopback address, and on a unix socket, anybody whose Host is a name of this machine; WEFT_HTTP_TOKEN asks for more.
 * On any other address nobody without a token, which is made here if there is none.
 *
 * How `weft top PID` finds it: through a memfd called "weft-http" that holds the address with the token, in /proc/PID/fd. It is
 * gone with the process, and the kernel shows it to its owner alone.
 */
#include "address.h"
#include "fd.h"
#include "sys_io.h"
#include "web.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/timerfd.h>

enum { PLACES = 24, CROWDED = 16, TRIES = 500 };
static const int64_t PATIENCE = 10 * WEFT_SEC;
static const int64_t SILENCE = 60 * WEFT_SEC; /* between two requests */
static const int64_t FAREWELL = WEFT_SEC;
static const int64_t SHORTAGE = 100 * WEFT_MSEC; /* descriptors have run out: after that, another try */

static struct {
    struct w_spin lock;
    uint32_t serial;               /* of the listener, 0: there is none; lock */
    uint32_t last_serial;          /* lock */
    struct w_use listener, ticker; /* their descriptors; lock */
    int memfd;                     /* lock */
    int guests;                    /* lock */
    bool placed;                   /* the places were made; lock */
    char token[W_TOKEN_MAX + 1];   /* "": none is needed; lock */
    struct w_guest guest[PLACES];
} server;

/* ---- time -------------------------------------------------------------------------------------------------------- */

static long new_timer(void)
{
    return W_RESULT(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
}

/* Ticks once a second while there are guests. */
static void set_ticking(bool on)
{
    struct itimerspec every = {.it_interval = {on, 0}, .it_value = {on, 0}};
    W_RESULT(syscall(SYS_timerfd_settime, server.ticker.fd, 0, &every, NULL));
}

static void show_the_door_locked(struct w_guest *guest)
{
    guest->shown_out = true;
    W_RESULT(syscall(SYS_shutdown, guest->fd, SHUT_RDWR));
}

static void look_at_guests(void)
{
    int64_t now = w_now();
    w_spin_lock(&server.lock);
    for (int i = 0; i < PLACES; i++)
        if (server.guest[i].fd >= 0 && ld_relaxed(&server.guest[i].deadline) < now)
            show_the_door_locked(&server.guest[i]);
    w_spin_unlock(&server.lock);
}

/* One of its descriptors; false: it is gone already. */
static bool find_of(uint32_t serial, const struct w_use *at, struct w_use *known)
{
    w_spin_lock(&server.lock);
    bool there = server.serial == serial;
    if (there)
        *known = *at;
    w_spin_unlock(&server.lock);
    return there;
}

static void usher(void *arg)
{
    struct w_use ticker;
    uint64_t times;
    if (!find_of((uint32_t)(uintptr_t)arg, &server.ticker, &ticker))
        return;
    while (w_read_known(&ticker, &times, sizeof times) > 0)
        look_at_guests();
}

/* ---- guests ------------------------------------------------------------------------------------------------------ */

/* Those in the same state began it in the order of their deadlines. */
static bool goes_before_locked(struct w_guest *a, struct w_guest *b)
{
    return a->state != b->state ? a->state < b->state : ld_relaxed(&a->deadline) < ld_relaxed(&b->deadline);
}

/* false: there is nobody who could go. */
static bool make_room_locked(void)
{
    struct w_guest *first = NULL;
    for (int i = 0; i < PLACES; i++) {
        struct w_guest *guest = &server.guest[i];
        if (guest->fd >= 0 && !guest->shown_out && guest->state != W_GUEST_ANSWERED &&
            (first == NULL || goes_before_locked(guest, first)))
            first = guest;
    }
    if (first != NULL)
        show_the_door_locked(first);
    return first != NULL;
}

static struct w_guest *free_place_locked(void)
{
    for (int i = 0; i < PLACES; i++)
        if (server.guest[i].fd < 0)
            return &server.guest[i];
    return NULL;
}

/* A newcomer is about to ask: else of several that come at once each would have to leave for the next. */
static void sit_down_locked(struct w_guest *guest, int fd)
{
    guest->fd = fd;
    guest->state = W_GUEST_ASKS;
    guest->shown_out = false;
    guest->memory = guest->timer = -1;
    strcpy(guest->token, server.token);
    w_guest_may_take(guest, PATIENCE);
    if (server.guests++ == 0)
        set_ticking(true);
}

/* -ESTALE: the listener that it came to is gone. -EAGAIN: there is no room. made_room: somebody goes for its sake, and nobody else
 * has to. */
static int take_place(int fd, uint32_t serial, bool *made_room, struct w_guest **place)
{
    int r = -ESTALE;
    w_spin_lock(&server.lock);
    if (server.serial == serial) {
        if (server.guests >= CROWDED && !*made_room)
            *made_room = make_room_locked();
        *place = free_place_locked();
        r = *place != NULL ? 0 : -EAGAIN;
        if (r == 0)
            sit_down_locked(*place, fd);
    }
    w_spin_unlock(&server.lock);
    return r;
}

/* With so much time for it. false: it has been shown the door. */
static bool turn_to(struct w_guest *guest, enum w_guest_state state, int64_t ns)
{
    w_spin_lock(&server.lock);
    bool stays = !guest->shown_out;
    guest->state = state;
    w_guest_may_take(guest, ns);
    w_spin_unlock(&server.lock);
    return stays;
}

/* The descriptor is closed under the lock, and not with weft_close_fd, in which the end of the run may come in between: nobody
 * uses it, and the next one with its number begins a new life as it is accepted. */
static void leave_place(struct w_guest *guest)
{
    w_spin_lock(&server.lock);
    w_sys_close(guest->fd);
    guest->fd = -1;
    if (--server.guests == 0 && server.serial != 0)
        set_ticking(false);
    w_spin_unlock(&server.lock);
}

/* The next request, from what has come of it on; 0: the guest has left, or must. */
static int receive(struct w_guest *guest, struct w_http *r, char *bytes, size_t *have)
{
    int result = w_http_parse(r, bytes, *have);
    if (result == W_HTTP_MORE && guest->state == W_GUEST_ANSWERED)
        turn_to(guest, *have > 0 ? W_GUEST_ASKS : W_GUEST_IDLE, *have > 0 ? PATIENCE : SILENCE);
    while (result == W_HTTP_MORE) {
        ssize_t n = weft_read(guest->fd, bytes + *have, W_HTTP_MAX - *have);
        if (n <= 0)
            return 0;
        if (*have == 0)
            turn_to(guest, W_GUEST_ASKS, PATIENCE);
        *have += (size_t)n;
        result = w_http_parse(r, bytes, *have);
    }
    return turn_to(guest, W_GUEST_ANSWERED, WEFT_NEVER) ? result : 0;
}

/* What was sent is lost if the connection is closed while there is something to read. */
static void say_farewell(struct w_guest *guest, char *bytes)
{
    turn_to(guest, W_GUEST_IDLE, FAREWELL);
    W_RESULT(syscall(SYS_shutdown, guest->fd, SHUT_WR));
    while (weft_read(guest->fd, bytes, W_HTTP_MAX) > 0)
        ;
}

static void attend(void *arg)
{
    struct w_guest *guest = arg;
    struct w_http r;
    char bytes[W_HTTP_MAX];
    size_t have = 0;
    int result;
    bool goes_on = true;
    while (goes_on && (result = receive(guest, &r, bytes, &have)) != 0) {
        goes_on = result == W_HTTP_DONE;
        if (goes_on) {
            goes_on = w_answer(guest, &r);
            memmove(bytes, bytes + r.size, have -= r.size);
        } else {
            w_refuse(guest, &r, result);
        }
    }
    say_farewell(guest, bytes);
    leave_place(guest);
}

/* In a blocking region: it may be that not even a timer can be had. */
static void nap(int64_t ns)
{
    weft_block_enter();
    w_nap(ns);
    weft_block_leave();
}

static void welcome(int fd, uint32_t serial)
{
    struct w_guest *guest;
    bool made_room = false;
    int on = 1; /* the head of an answer and its body are two writes: the second is not to wait for word of the first */
    W_RESULT(syscall(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    int r = take_place(fd, serial, &made_room, &guest);
    for (int i = 0; r == -EAGAIN && i < TRIES; i++) {
        nap(WEFT_MSEC); /* those who were shown the door are about to leave */
        r = take_place(fd, serial, &made_room, &guest);
    }
    if (r != 0) {
        if (r == -EAGAIN)
            w_refuse(&(struct w_guest){.fd = fd}, &(struct w_http){0}, 503);
        w_sys_close(fd);
    } else if (w_go_service("weft http guest", attend, guest) != 0) {
        leave_place(guest);
    }
}

static void accept_guests(void *arg)
{
    uint32_t serial = (uint32_t)(uintptr_t)arg;
    struct w_use listener;
    if (!find_of(serial, &server.listener, &listener))
        return;
    for (;;) {
        int fd = w_accept_known(&listener);
        if (fd >= 0)
            welcome(fd, serial);
        else if (fd == -EMFILE || fd == -ENFILE || fd == -ENOBUFS || fd == -ENOMEM)
            nap(SHORTAGE);
        else if (fd == -EBADF || fd == -EINVAL || fd == -ENOTSOCK)
            return;
    }
}

/* ---- where and for whom ------------------------------------------------------------------------------------------ */

struct place {
    char url[160]; /* without the token */
    int port;
    bool local;
};

/* The path of a unix socket may have any byte in it; an abstract one begins with NUL. */
static void describe_unix(const struct sockaddr_un *un, socklen_t length, struct place *place)
{
    size_t n = length - offsetof(struct sockaddr_un, sun_path);
    bool abstract = n > 0 && un->sun_path[0] == '\0';
    snprintf(place->url, sizeof place->url, "unix:%s%.*s", abstract ? "@" : "", (int)(n - abstract),
             un->sun_path + abstract);
    place->local = true;
}

static int describe(int fd, struct place *place)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } sa = {0};
    socklen_t length = sizeof sa;
    char text[INET6_ADDRSTRLEN];
    long r = W_RESULT(getsockname(fd, &sa.any, &length));
    if (r != 0)
        return (int)r;
    *place = (struct place){0};
    if (sa.any.sa_family == AF_UNIX) {
        describe_unix(&sa.un, length, place);
        return 0;
    }
    bool six = sa.any.sa_family == AF_INET6;
    inet_ntop(sa.any.sa_family, six ? (void *)&sa.in6.sin6_addr : (void *)&sa.in.sin_addr, text, sizeof text);
    place->port = ntohs(six ? sa.in6.sin6_port : sa.in.sin_port);
    place->local = six ? IN6_IS_ADDR_LOOPBACK(&sa.in6.sin6_addr) : ntohl(sa.in.sin_addr.s_addr) >> 24 == 127;
    snprintf(place->url, sizeof place->url, six ? "http://[%s]:%d/" : "http://%s:%d/", text, place->port);
    return 0;
}

static bool token_makes_sense(const char *token)
{
    static const char may_be[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    size_t n = strlen(token);
    return n >= W_TOKEN_MIN && n <= W_TOKEN_MAX && strspn(token, may_be) == n;
}

static const char *setting(const char *name)
{
    const char *text = getenv(name);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* The one that was set, or, where one is needed, a new one of 128 random bits. */
static int choose_token(bool needed, char *token)
{
    const char *set = setting("WEFT_HTTP_TOKEN");
    unsigned char random[16];
    token[0] = '\0';
    if (set != NULL && !token_makes_sense(set))
        return -EINVAL;
    if (set != NULL) {
        strcpy(token, set);
    } else if (needed) {
        if (W_RESULT(getrandom(random, sizeof random, 0)) != sizeof random)
            return -EIO;
        for (size_t i = 0; i < sizeof random; i++)
            sprintf(token + 2 * i, "%02x", random[i]);
    }
    return 0;
}

/* ---- beginning and end ------------------------------------------------------------------------------------------- */

static int new_note(const struct place *place, const char *token)
{
    char text[sizeof place->url + W_TOKEN_MAX + 16];
    int n = snprintf(text, sizeof text, "%s%s%s\n", place->url, token[0] != '\0' ? "?token=" : "", token);
    long fd = W_RESULT(syscall(SYS_memfd_create, "weft-http", 1 /* MFD_CLOEXEC */));
    if (fd < 0)
        return (int)fd;
    struct iovec iov = {text, (size_t)n};
    w_sys_write((int)fd, &iov, 1, 0);
    return (int)fd;
}

static bool is_up(void)
{
    w_spin_lock(&server.lock);
    bool up = server.serial != 0;
    w_spin_unlock(&server.lock);
    return up;
}

static void make_places_locked(void)
{
    for (int i = 0; i < PLACES && !server.placed; i++)
        server.guest[i].fd = -1;
    server.placed = true;
}

/* 0: there is a listener already. */
static uint32_t install(const struct w_use *listener, const struct w_use *ticker, int memfd, const char *token)
{
    uint32_t serial = 0;
    w_spin_lock(&server.lock);
    if (server.serial == 0) {
        make_places_locked();
        serial = server.serial = ++server.last_serial;
        server.listener = *listener;
        server.ticker = *ticker;
        server.memfd = memfd;
        strcpy(server.token, token);
        if (server.guests > 0)
            set_ticking(true);
    }
    w_spin_unlock(&server.lock);
    return serial;
}

/* Whoever gets its descriptors closes them. serial 0: whichever it is. */
static bool uninstall(uint32_t serial, int fds[3])
{
    w_spin_lock(&server.lock);
    bool mine = server.serial != 0 && (serial == 0 || serial == server.serial);
    if (mine) {
        server.serial = 0;
        fds[0] = server.listener.fd;
        fds[1] = server.ticker.fd;
        fds[2] = server.memfd;
        for (int i = 0; i < PLACES; i++)
            if (server.guest[i].fd >= 0)
                show_the_door_locked(&server.guest[i]);
    }
    w_spin_unlock(&server.lock);
    return mine;
}

static int close_up(uint32_t serial)
{
    int fds[3];
    if (!uninstall(serial, fds))
        return -ESRCH;
    for (int i = 0; i < 3; i++)
        weft_close_fd(fds[i]);
    return 0;
}

static int close_all(int listen_fd, int tick_fd, int memfd, int result)
{
    if (memfd >= 0)
        w_sys_close(memfd);
    if (tick_fd >= 0)
        w_sys_close(tick_fd);
    weft_close_fd(listen_fd);
    return result;
}

static int open_up(int listen_fd, const struct place *place, const char *token)
{
    struct w_use listener, ticker;
    int tick_fd = (int)new_timer(), memfd = new_note(place, token);
    if (tick_fd < 0 || memfd < 0)
        return close_all(listen_fd, tick_fd, memfd, tick_fd < 0 ? tick_fd : memfd);
    int r = w_fd_know(&listener, listen_fd);
    if (r == 0)
        r = w_fd_know(&ticker, tick_fd);
    if (r != 0)
        return close_all(listen_fd, tick_fd, memfd, r);
    uint32_t serial = install(&listener, &ticker, memfd, token);
    if (serial == 0)
        return close_all(listen_fd, tick_fd, memfd, -EBUSY);
    r = w_go_service("weft http usher", usher, (void *)(uintptr_t)serial);
    if (r == 0)
        r = w_go_service("weft http", accept_guests, (void *)(uintptr_t)serial);
    if (r != 0)
        close_up(serial);
    return r;
}

/* loud: say where it is. A token that was made here is always said. */
static int start(const char *address, bool loud)
{
    char token[W_TOKEN_MAX + 1];
    struct place place;
    if (is_up())
        return -EBUSY;
    int fd = weft_listen(address);
    if (fd < 0)
        return fd;
    int r = describe(fd, &place);
    if (r == 0)
        r = choose_token(!place.local, token);
    if (r != 0) {
        weft_close_fd(fd);
        return r;
    }
    bool made = token[0] != '\0' && setting("WEFT_HTTP_TOKEN") == NULL;
    r = open_up(fd, &place, token);
    if (r == 0 && (loud || made))
        w_say("the live picture is at %s%s%s", place.url, made ? "?token=" : "", made ? token : "");
    return r != 0 ? r : place.port;
}

int weft_http_start(const char *address)
{
    return start(address != NULL ? address : "127.0.0.1:0", false);
}

int weft_http_stop(void)
{
    return close_up(0);
}

/* ---- with a run -------------------------------------------------------------------------------------------------- */

int w_web_settle(void)
{
    struct w_address a;
    const char *address = setting("WEFT_HTTP"), *token = setting("WEFT_HTTP_TOKEN");
    if (address != NULL && w_address_parse(address, &a) != 0) {
        w_say("WEFT_HTTP=%s makes no sense", address);
        return -EINVAL;
    }
    if (token != NULL && !token_makes_sense(token)) {
        w_say("WEFT_HTTP_TOKEN makes no sense: %d to %d letters, digits and -._~ are wanted", W_TOKEN_MIN, W_TOKEN_MAX);
        return -EINVAL;
    }
    return 0;
}

/* A program runs without its picture rather than not at all. */
static void start_from_environment(void *address)
{
    int r = start(address, true);
    if (r < 0)
        w_say("no live picture at WEFT_HTTP=%s: error %d (%s)", (const char *)address, -r, strerror(-r));
    w_run_free(address);
}

void w_web_begin(void)
{
    const char *set = setting("WEFT_HTTP");
    char *address = set != NULL ? w_run_alloc(strlen(set) + 1) : NULL;
    if (address == NULL)
        return;
    strcpy(address, set); /* which the program may change */
    int r = w_go_service("weft http", start_from_environment, address);
    if (r != 0 && r != -EPERM) /* -EPERM: the run is over already */
        w_say("no live picture at WEFT_HTTP=%s: error %d", set, -r);
}

static void close_some(const int *fds, int n)
{
    for (int i = 0; i < n; i++)
        if (fds[i] >= 0)
            w_sys_close(fds[i]);
}

void w_web_end(void)
{
    int fds[3];
    if (uninstall(0, fds))
        close_some(fds, 3);
    for (int i = 0; i < PLACES && server.placed; i++) {
        struct w_guest *guest = &server.guest[i];
        if (guest->fd >= 0)
            close_some((int[]){guest->fd, guest->memory, guest->timer}, 3);
    }
    server.placed = false;
    server.guests = 0;
}
