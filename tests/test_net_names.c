/* SPDX-License-Identifier: MIT */
/*
 * weft_listen and weft_dial with names, and on machines without IPv6.
 *
 * The executable is linked with --wrap for the calls that stand for the world: getaddrinfo and freeaddrinfo know the names that
 * end in ".test", and leave all others to libc; socket can be told that there is no IPv6, and which port to choose; malloc and
 * strdup fail on order.
 */
#include "nets.h"
#include <netdb.h>

/* ---- the world -------------------------------------------------------------------------------------------------- */

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list);
void __real_freeaddrinfo(struct addrinfo *list);
void __wrap_freeaddrinfo(struct addrinfo *list);
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static _Atomic int asked, lists; /* calls; lists that were not freed yet */
static _Atomic int inside, most; /* of "slow.test": now, and at the same time */
static _Atomic bool released, no_ipv6;
static _Atomic int service_port; /* of "svc-test" */
static _Atomic int own_port;     /* that a new socket has from the beginning; 0: it could not have it */

static const struct {
    const char *name;
    int error;
} ERRORS[] = {{"noname.test", EAI_NONAME}, {"nodata.test", EAI_NODATA}, {"family.test", EAI_ADDRFAMILY},
              {"fail.test", EAI_FAIL},     {"again.test", EAI_AGAIN},   {"memory.test", EAI_MEMORY},
              {"system.test", EAI_SYSTEM}, {"slow.test", EAI_NONAME}};

static char ours[1]; /* as a canonical name: it tells our answers from those of libc */

struct answer {
    struct addrinfo info;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
    } sa;
};

/* In front of the list. */
static void add(struct addrinfo **list, int family, uint32_t host)
{
    struct answer *a = calloc(1, sizeof *a);
    a->info =
        (struct addrinfo){.ai_family = family, .ai_socktype = SOCK_STREAM, .ai_addr = &a->sa.any, .ai_next = *list};
    a->info.ai_canonname = ours;
    a->sa.any.sa_family = (sa_family_t)family;
    if (family == AF_INET6) {
        a->sa.in6.sin6_addr = in6addr_loopback;
        a->info.ai_addrlen = sizeof a->sa.in6;
    } else {
        a->sa.in.sin_addr.s_addr = htonl(host);
        a->info.ai_addrlen = sizeof a->sa.in;
    }
    a->sa.in.sin_port = htons((uint16_t)service_port); /* of either: they lie in the same place */
    *list = &a->info;
}

enum { NOBODY_THERE = INADDR_LOOPBACK + 1 };

static void answer(const char *name, struct addrinfo **list)
{
    if (strcmp(name, "odd.test") == 0)
        add(list, AF_APPLETALK, 0);
    else
        add(list, AF_INET, INADDR_LOOPBACK);
    if (strcmp(name, "two.test") == 0)
        add(list, AF_INET, NOBODY_THERE);
    for (int i = 0; i < 100 && strcmp(name, "many.test") == 0; i++)
        add(list, AF_INET, NOBODY_THERE);
    if (strcmp(name, "both.test") == 0)
        add(list, AF_INET6, 0);
}

/* As deep as any module of a resolver will go. */
static __attribute__((noinline)) int deep(void)
{
    volatile char room[200 << 10];
    for (size_t i = 0; i < sizeof room; i += 512)
        room[i] = 1;
    return room[0];
}

static void be_slow(void)
{
    int n = ++inside;
    for (int m = most; n > m && !atomic_compare_exchange_weak(&most, &m, n);)
        ;
    while (!released)
        usleep(1000);
    inside--;
}

static int known_error(const char *name)
{
    for (size_t i = 0; i < sizeof ERRORS / sizeof *ERRORS; i++)
        if (strcmp(name, ERRORS[i].name) == 0)
            return ERRORS[i].error;
    return 0;
}

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **list)
{
    asked++;
    CHECK(hints != NULL && hints->ai_socktype == SOCK_STREAM && hints->ai_family == AF_UNSPEC);
    if (name != NULL && strstr(name, ".test") == NULL)
        return __real_getaddrinfo(name, service, hints, list);
    if (service != NULL && strcmp(service, "svc-test") != 0)
        return EAI_SERVICE;
    if (name != NULL && strcmp(name, "slow.test") == 0)
        be_slow();
    errno = EMFILE;
    int error = name != NULL ? known_error(name) : 0;
    if (error != 0)
        return error;
    lists += deep();
    *list = NULL;
    answer(name != NULL ? name : "", list);
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *list)
{
    struct addrinfo *next;
    if (list->ai_canonname != ours) {
        __real_freeaddrinfo(list);
        return;
    }
    for (; list != NULL; list = next) {
        next = list->ai_next;
        free(list); /* the first member of a struct answer */
    }
    lists--;
}

int __wrap_socket(int domain, int type, int protocol)
{
    if (domain == AF_INET6 && no_ipv6) {
        errno = EAFNOSUPPORT;
        return -1;
    }
    int fd = __real_socket(domain, type, protocol);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    in.sin_port = htons((uint16_t)own_port);
    if (own_port != 0 && bind(fd, (struct sockaddr *)&in, sizeof in) != 0)
        own_port = 0;
    return fd;
}

static __thread bool no_malloc, no_strdup;

void *__wrap_malloc(size_t size)
{
    return no_malloc ? NULL : __real_malloc(size);
}

char *__wrap_strdup(const char *text)
{
    return no_strdup ? NULL : __real_strdup(text);
}

/* ---- addresses of a name ----------------------------------------------------------------------------------------- */

static int hold_nobody(int port)
{
    return bound_ipv4(NOBODY_THERE, port);
}

static void in_turn_main(void *arg)
{
    int held;
    (void)arg;
    int fd = listens_beside(hold_nobody, &held);
    CHECK(held >= 0);
    int before = asked;
    leads_to(text_of("127.0.0.1:%d", port_of(fd)), fd);
    CHECK_EQ(weft_dial(text_of("127.0.0.2:%d", port_of(fd))), -ECONNREFUSED);
    CHECK_EQ(asked, before); /* nobody has to look these up */
    leads_to(text_of("one.test:%d", port_of(fd)), fd);
    leads_to(text_of("two.test:%d", port_of(fd)), fd);
    CHECK_EQ(asked, before + 2);
    CHECK_EQ(weft_dial(text_of("many.test:%d", port_of(fd))), -ECONNREFUSED);
    CHECK_EQ(lists, 0);
    close(held);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(the_addresses_of_a_name_are_dialed_in_turn)
{
    on_each_procs(in_turn_main);
}

static void error_main(void *arg)
{
    static const struct {
        const char *address;
        int result;
    } table[] = {{"noname.test:1", -EHOSTUNREACH}, {"nodata.test:1", -EHOSTUNREACH},
                 {"family.test:1", -EHOSTUNREACH}, {"fail.test:1", -EHOSTUNREACH},
                 {"odd.test:1", -EHOSTUNREACH},    {"again.test:1", -EAGAIN},
                 {"memory.test:1", -ENOMEM},       {"system.test:1", -EMFILE},
                 {"one.test:no-such", -EINVAL},    {":no-such", -EINVAL},
                 {"127.0.0.1:no-such", -EINVAL}};
    (void)arg;
    for (int n = 0; n < 10; n++) /* more than may be under way at once */
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            CHECK_EQ(weft_dial(table[i].address), table[i].result);
            CHECK_EQ(weft_listen(table[i].address), table[i].result);
        }
    CHECK_EQ(lists, 0);
}

CASE(what_the_resolver_says_becomes_an_error)
{
    on_each_procs(error_main);
}

static void memory_main(void *arg)
{
    (void)arg;
    weft_pin(); /* it stays on the thread that has no memory */
    for (int i = 0; i < 100; i++) {
        no_malloc = i % 2 == 0;
        no_strdup = i % 2 != 0;
        CHECK_EQ(weft_dial("noname.test:1"), -ENOMEM);
        no_malloc = no_strdup = false;
    }
    weft_unpin();
    CHECK_EQ(weft_dial("noname.test:1"), -EHOSTUNREACH); /* no permit was lost */
    CHECK(others_have_ended());
}

CASE(a_lookup_for_which_there_is_no_memory_is_not_made)
{
    on_each_procs(memory_main);
}

static void service_main(void *arg)
{
    (void)arg;
    int fd = listens("127.0.0.1:0");
    service_port = port_of(fd);
    leads_to("127.0.0.1:svc-test", fd);
    leads_to("one.test:svc-test", fd);
    CHECK_EQ(weft_listen("127.0.0.1:svc-test"), -EADDRINUSE);
    CHECK_EQ(weft_close_fd(fd), 0);
    service_port = 0;
    fd = listens(":0");
    service_port = port_of(fd);
    leads_to(":svc-test", fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    service_port = 0;
    CHECK_EQ(lists, 0);
}

CASE(a_service_stands_for_its_port)
{
    on_each_procs(service_main);
}

static void listen_main(void *arg)
{
    (void)arg;
    int fd = listens("one.test:0");
    leads_to(text_of("127.0.0.1:%d", port_of(fd)), fd);
    CHECK_EQ(weft_listen(text_of("one.test:%d", port_of(fd))), -EADDRINUSE);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(a_name_may_be_listened_on)
{
    on_each_procs(listen_main);
}

static bool knows_localhost(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    if (__real_getaddrinfo("localhost", NULL, &hints, &list) != 0)
        return false;
    __real_freeaddrinfo(list);
    return true;
}

static void localhost_main(void *arg)
{
    (void)arg;
    int fd = listens("localhost:0");
    if (fd < 0)
        return;
    leads_to(text_of("localhost:%d", port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
}

CASE(localhost_is_listened_on_and_dialed)
{
    if (knows_localhost())
        on_each_procs(localhost_main);
    else
        skipped("libc does not know localhost here");
}

/* ---- machines without IPv6 --------------------------------------------------------------------------------------- */

static void without_main(void *arg)
{
    (void)arg;
    int fd = listens(":0");
    CHECK_EQ(option_of(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
    leads_to(text_of("127.0.0.1:%d", port_of(fd)), fd);
    leads_to(text_of(":%d", port_of(fd)), fd);
    leads_to(text_of("both.test:%d", port_of(fd)), fd);
    CHECK_EQ(weft_listen(text_of(":%d", port_of(fd))), -EADDRINUSE);
    CHECK_EQ(weft_close_fd(fd), 0);
    fd = listens("both.test:0");
    CHECK_EQ(option_of(fd, SOL_SOCKET, SO_DOMAIN), AF_INET);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_listen("[::1]:0"), -EAFNOSUPPORT);
    CHECK_EQ(weft_dial("[::1]:1"), -EAFNOSUPPORT);
    int held = bound_ipv4(INADDR_LOOPBACK, 0);
    CHECK_EQ(weft_dial(text_of(":%d", port_of(held))), -ECONNREFUSED); /* what IPv4 says, as IPv6 has nothing to say */
    close(held);
}

CASE(where_there_is_no_ipv6_ipv4_will_do)
{
    no_ipv6 = true;
    on_each_procs(without_main);
    no_ipv6 = false;
}

/* ---- a socket that finds itself ----------------------------------------------------------------------------------- */

/* 1: somebody else was quicker. */
static int dial_oneself(void)
{
    int held = bound_ipv4(INADDR_LOOPBACK, 0), port = port_of(held);
    close(held);
    own_port = port;
    int r = weft_dial(text_of("127.0.0.1:%d", port));
    bool chosen = own_port == port;
    own_port = 0;
    if (r >= 0)
        CHECK_EQ(weft_close_fd(r), 0);
    return chosen ? r : 1;
}

static void oneself_main(void *arg)
{
    int r = 1;
    (void)arg;
    for (int i = 0; i < 50 && r == 1; i++)
        r = dial_oneself();
    CHECK_EQ(r, -ECONNREFUSED);
}

CASE(a_dial_is_not_connected_with_itself)
{
    on_each_procs(oneself_main);
}

/* ---- a resolver that does not answer ----------------------------------------------------------------------------- */

static void hold_resolver(void)
{
    released = false;
    most = inside = 0;
}

/* Until n lookups are under way. */
static void await_inside(int n)
{
    CHECK(reaches(&inside, n, 60));
}

static void await_released(void)
{
    released = true;
    CHECK(others_have_ended());
    CHECK_EQ(inside, 0);
}

static void cancel_when_inside(void *scope)
{
    await_inside(2);
    weft_scope_cancel(scope, -EIO);
}

/* In a scope whose deadline comes while the resolver is asked: a slow machine may be late, but not each time. */
static void dial_till_deadline(void)
{
    weft_scope s = some_scope();
    for (int i = 0; i < 50 && weft_count() == 1; i++) {
        int64_t deadline = weft_now() + 20 * WEFT_MSEC;
        CHECK_EQ(weft_scope_open(&s, deadline), 0);
        CHECK_EQ(weft_dial("slow.test:1"), -ETIMEDOUT);
        CHECK(weft_now() >= deadline);
        int n = weft_count();
        CHECK_EQ(weft_listen("slow.test:1"), -ETIMEDOUT); /* over already: nobody is asked */
        CHECK_EQ(weft_count(), n);
        CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    }
}

static void deadline_main(void *arg)
{
    weft_scope s = some_scope();
    (void)arg;
    hold_resolver();
    dial_till_deadline();
    await_inside(1);
    CHECK_EQ(weft_scope_open(&s, WEFT_NEVER), 0);
    CHECK_EQ(weft_scope_go(&s, cancel_when_inside, &s), 0);
    CHECK_EQ(weft_listen("slow.test:1"), -ECANCELED);
    CHECK_EQ(weft_scope_close(&s), -EIO);
    CHECK_EQ(inside, 2); /* still, and nobody waits for them */
    await_released();
    CHECK_EQ(weft_dial("slow.test:1"), -EHOSTUNREACH);
}

CASE(a_deadline_does_not_wait_for_the_resolver)
{
    on_each_procs(deadline_main);
}

static void dial_slow(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_dial("slow.test:1"), -EHOSTUNREACH);
}

static void limit_main(void *arg)
{
    weft_scope s = some_scope();
    (void)arg;
    hold_resolver();
    for (int i = 0; i < 100; i++)
        CHECK_EQ(weft_go(dial_slow, NULL), 0);
    await_inside(64);
    CHECK_EQ(weft_scope_open(&s, weft_now() + 20 * WEFT_MSEC), 0);
    CHECK_EQ(weft_dial("slow.test:1"), -ETIMEDOUT); /* while it waits for its turn to ask */
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(inside, 64);
    await_released();
    CHECK_EQ(most, 64);
}

CASE(the_resolver_is_asked_by_64_at_the_most)
{
    on_each_procs(limit_main);
}

static _Atomic int beats;

static void beat(void *arg)
{
    (void)arg;
    while (!released) {
        beats++;
        weft_yield();
    }
}

static void others_main(void *arg)
{
    (void)arg;
    hold_resolver();
    CHECK_EQ(weft_go(dial_slow, NULL), 0);
    CHECK_EQ(weft_go(beat, NULL), 0);
    await_inside(1);
    CHECK(reaches(&beats, beats + 1000, 60));
    await_released();
}

CASE(others_run_while_the_resolver_is_asked)
{
    on_each_procs(others_main);
}

/* ---- the run ends meanwhile -------------------------------------------------------------------------------------- */

static void leave_main(void *arg)
{
    (void)arg;
    hold_resolver();
    for (int i = 0; i < 64; i++)
        CHECK_EQ(weft_go(dial_slow, NULL), 0);
    await_inside(64);
}

static void all_free_main(void *arg)
{
    (void)arg;
    hold_resolver();
    for (int i = 0; i < 64; i++)
        CHECK_EQ(weft_go(dial_slow, NULL), 0);
    await_inside(64); /* none of them is missed */
    await_released();
}

CASE(lookups_that_a_run_leaves_behind_are_not_missed_in_the_next)
{
    CHECK_EQ(run_on(2, leave_main, NULL), 0);
    int before = inside;
    CHECK_EQ(before, 64);
    released = true;
    while (inside > 0)
        usleep(1000);
    CHECK_EQ(run_on(2, all_free_main, NULL), 0);
}

static void dial_odd(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_dial("odd.test:1"), -EHOSTUNREACH);
}

static void hasty_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < 8; i++)
        CHECK_EQ(weft_go(dial_odd, NULL), 0);
    for (int i = 0; i < 4; i++)
        weft_yield();
}

CASE(a_run_may_end_anywhere_in_a_lookup)
{
    for (int i = 0; i < scaled(100); i++)
        EACH_PROCS(p) CHECK_EQ(run_on(p, hasty_main, NULL), 0);
    while (lists > 0) /* a thread that was left behind is about to free it */
        usleep(1000);
}

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *foreign_thread(void *arg)
{
    weft_scope s = some_scope();
    int fd = listens("one.test:0");
    leads_to(text_of("one.test:%d", port_of(fd)), fd);
    CHECK_EQ(weft_close_fd(fd), 0);
    CHECK_EQ(weft_dial("again.test:1"), -EAGAIN);
    CHECK_EQ(weft_scope_open(&s, weft_now() + 20 * WEFT_MSEC), 0);
    CHECK_EQ(weft_dial("slow.test:1"), -ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    return arg;
}

static void foreign_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    hold_resolver();
    CHECK_EQ(pthread_create(&thread, NULL, foreign_thread, NULL), 0);
    join_in_region(&thread, 1);
    await_released();
    CHECK_EQ(lists, 0);
}

CASE(foreign_threads_look_up_names_too)
{
    on_each_procs(foreign_main);
}

static void *dial_till_the_end(void *arg)
{
    int r;
    while ((r = weft_dial("slow.test:1")) == -EPERM) /* the run has not begun */
        usleep(100);
    CHECK_EQ(r, -ECANCELED);
    return arg;
}

static void end_main(void *arg)
{
    (void)arg;
    await_inside(1);
}

CASE(the_end_of_a_run_ends_the_dials_of_foreign_threads)
{
    EACH_PROCS(p)
    {
        pthread_t thread;
        hold_resolver();
        CHECK_EQ(weft_dial("one.test:1"), -EPERM);
        CHECK_EQ(pthread_create(&thread, NULL, dial_till_the_end, NULL), 0);
        CHECK_EQ(run_on(p, end_main, NULL), 0);
        pthread_join(thread, NULL);
        released = true;
        while (inside > 0)
            usleep(1000);
    }
}
