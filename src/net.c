/* SPDX-License-Identifier: MIT */
/*
 * weft_listen and weft_dial: from an address as text to a descriptor.
 *
 *      text ── address.c ──> a literal, or none ──────────────┐
 *                            a name, a service ── look_up ──> targets, at most 32 ──> each in turn: bind or connect
 *
 * The resolver of libc blocks for as long as its servers are silent, and no scope can end that. So a goroutine of its own asks
 * it, in a blocking region, and whoever wants to know waits in a way that can be cut:
 *
 *      who asks                                  look_up's goroutine
 *      a permit; a lookup with two owners ────>  reads the question
 *      waits                                     getaddrinfo, in a blocking region
 *      reads the answer, if it was not cut  <──  writes the answer, done; gives the permit back
 *      lets go of the lookup                     lets go of the lookup                the last one frees it
 *
 * Invariants:
 *   NT1  a lookup is memory of its run, and is touched only inside the runtime or by a foreign thread that is counted as
 *        being there: a goroutine that the end of the run finds in the resolver does not come back to it
 *   NT2  what getaddrinfo allocated is freed before the region ends, for the same reason
 *   NT3  permits are counted anew in each run: those that discarded goroutines hold are not missed
 *
 * Rejected: the caller itself in a region (a deadline would have to wait for the resolver); getaddrinfo_a, which has threads of
 * its own that nobody counts, and cannot interrupt a request either.
 */
#include "address.h"
#include "netpoll.h"
#include "sys_io.h"
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/stat.h>

enum {
    MAX_TARGETS = 32,    /* of a name; an answer of 512 bytes, what most servers keep to, has room for 28 */
    MAX_LOOKUPS = 64,    /* at once: each may hold up a thread for the 10 s of two servers that are silent */
    STACK = 256 << 10,   /* getaddrinfo needs 12 KiB by itself, and loads modules that need what they need */
    BACKLOG = SOMAXCONN, /* the kernel has a limit of its own */
};

union target {
    struct sockaddr any;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;
};
_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "set_port");

struct targets {
    int count;
    union target at[MAX_TARGETS];
};

static void set_port(struct targets *t, in_port_t port)
{
    for (int i = 0; i < t->count; i++)
        t->at[i].in.sin_port = port;
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

struct lookup {
    weft_wg done;
    _Atomic int owners;
    struct w_address question; /* constant */
    struct targets answer;     /* the goroutine, until done */
    int result;                /* likewise */
};

static weft_sem permits;

void w_net_init(void)
{
    permits.permits_ = MAX_LOOKUPS; /* nobody is there yet */
}

static int error_of(int eai)
{
    switch (eai) {
    case EAI_AGAIN:
        return -EAGAIN;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SERVICE:
    case EAI_SOCKTYPE:
    case EAI_FAMILY:
    case EAI_BADFLAGS:
        return -EINVAL;
    default:
        return -EHOSTUNREACH; /* no such name, no address of it, or a server that will not tell */
    }
}

static void add_target(struct targets *t, const struct addrinfo *ai)
{
    bool inet = ai->ai_family == AF_INET || ai->ai_family == AF_INET6;
    if (inet && ai->ai_addrlen <= sizeof(union target) && t->count < MAX_TARGETS)
        memcpy(&t->at[t->count++], ai->ai_addr, ai->ai_addrlen);
}

/* A service alone gives some address with its port. */
static int ask(const struct w_address *a, struct targets *t)
{
    const char *name = a->name[0] != '\0' ? a->name : NULL, *service = a->service[0] != '\0' ? a->service : NULL;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int eai = getaddrinfo(name, service, &hints, &list); /* perhaps our own around it, which may change the thread */
    if (eai != 0)
        return eai == EAI_SYSTEM && *w_errno_location() > 0 ? -*w_errno_location() : error_of(eai);
    for (const struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next)
        add_target(t, ai);
    freeaddrinfo(list);
    return t->count > 0 ? 0 : -EHOSTUNREACH;
}

static struct lookup *lookup_new(const struct w_address *a)
{
    struct w_g *g = w_call_begin();
    struct lookup *l = w_run_alloc(sizeof *l);
    if (l != NULL)
        *l = (struct lookup){.owners = 2, .question = *a};
    w_call_end(g);
    if (l != NULL)
        weft_wg_add(&l->done, 1);
    return l;
}

static void let_go(struct lookup *l, int owners)
{
    struct w_g *g = w_call_begin();
    if (add_acq_rel(&l->owners, -owners) == owners) /* [NT-1] [NT-1] the last one sees that the other is done with it */
        w_run_free(l);
    w_call_end(g);
}

static void look_up_main(void *arg)
{
    struct lookup *l = arg;
    struct targets answer = {0};
    struct w_g *g = w_call_begin();
    struct w_address question = l->question;
    w_call_end(g);

    weft_block_enter();
    int r = ask(&question, &answer);
    weft_block_leave();

    g = w_call_begin();
    l->answer = answer;
    l->result = r;
    w_call_end(g);
    weft_wg_done(&l->done);
    weft_sem_release(&permits, 1);
    let_go(l, 1);
}

/* Waits for the answer; cut, it lets go of the lookup without. */
static int answer_of(struct lookup *l, struct targets *t)
{
    int r = weft_wg_wait(&l->done);
    if (r == 0) {
        struct w_g *g = w_call_begin();
        *t = l->answer;
        r = l->result;
        w_call_end(g);
    }
    let_go(l, 1);
    return r;
}

static int start_lookup(const struct w_address *a, struct lookup **l)
{
    static const weft_attr attr = {.name = "lookup", .stack_size = STACK};
    *l = lookup_new(a);
    if (*l == NULL)
        return -ENOMEM;
    int r = weft_go_with(&attr, look_up_main, *l);
    if (r != 0)
        let_go(*l, 2);
    return r;
}

static int look_up_in_run(const struct w_address *a, struct targets *t)
{
    struct lookup *l;
    int r = weft_cancelled();
    if (r == 0)
        r = weft_sem_acquire(&permits, 1);
    if (r != 0)
        return r;
    r = start_lookup(a, &l);
    if (r == 0)
        return answer_of(l, t);
    weft_sem_release(&permits, 1);
    return r;
}

/* The run of a foreign thread does not end under it: it is counted throughout (NT1), and its waits are cut. */
static int look_up(const struct w_address *a, struct targets *t)
{
    bool foreign = w_m() == NULL;
    int r = foreign ? w_foreign_enter() : 0;
    if (r != 0)
        return r;
    r = look_up_in_run(a, t);
    if (foreign)
        w_foreign_leave();
    return r;
}

/* ---- what an address stands for --------------------------------------------------------------------------------- */

/* 0: it is none. */
static uint32_t number(const char *s)
{
    uint64_t n = 0; /* a zone has fifteen digits at the most */
    for (; *s >= '0' && *s <= '9'; s++)
        n = n * 10 + (uint64_t)(*s - '0');
    return *s == '\0' && n <= UINT32_MAX ? (uint32_t)n : 0;
}

/* An interface by its name, or by its number. */
static int zone_index(const char *zone, uint32_t *index)
{
    int r = (int)W_RESULT((*index = if_nametoindex(zone)) == 0 ? -1 : 0);
    if (r != 0)
        *index = number(zone);
    return *index != 0 ? 0 : r;
}

static int literal(const struct w_address *a, struct targets *t)
{
    int r = 0;
    t->count = 1;
    memcpy(&t->at[0], &a->sa, a->length);
    if (a->zone[0] != '\0')
        r = zone_index(a->zone, &t->at[0].in6.sin6_scope_id);
    return r;
}

/* Without a host: IPv6 first, since a listener there takes IPv4 as well. */
static void this_machine(const struct in6_addr *six, in_addr_t four, struct targets *t)
{
    t->count = 2;
    t->at[0].in6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = *six};
    t->at[1].in = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(four)};
}

/* The targets in the order in which they are tried, at least one. */
static int find_targets(const struct w_address *a, bool listens, struct targets *t)
{
    int r = 0;
    in_port_t port = htons(a->port);
    *t = (struct targets){0};
    if (a->host == W_HOST_NAME || a->service[0] != '\0')
        r = look_up(a, t);
    if (r != 0)
        return r;
    if (a->service[0] != '\0')
        port = t->at[0].in.sin_port;
    if (a->host == W_HOST_NONE && listens)
        this_machine(&in6addr_any, INADDR_ANY, t);
    else if (a->host == W_HOST_NONE)
        this_machine(&in6addr_loopback, INADDR_LOOPBACK, t);
    else if (a->host != W_HOST_NAME)
        r = literal(a, t);
    set_port(t, port);
    return r;
}

static socklen_t length_of(const union target *to)
{
    return to->any.sa_family == AF_INET ? sizeof to->in : sizeof to->in6;
}

/* The machine has no such address, or nothing of its kind: what comes next may do. */
static bool not_here(int r)
{
    return r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL;
}

/* A new descriptor, of which the netpoller may know something that was true of its number before. */
static int new_socket(int family, int type)
{
    int fd = (int)W_RESULT(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    struct w_g *g = w_call_begin();
    if (fd >= 0)
        w_fd_fresh(fd);
    w_call_end(g);
    return fd;
}

static int set_option(int fd, int level, int option, int value)
{
    return (int)W_RESULT(setsockopt(fd, level, option, &value, sizeof value));
}

/* The descriptor, or what went wrong, and then it is closed. */
static int opened(int fd, int r)
{
    if (r == 0)
        return fd;
    weft_close_fd(fd);
    return r;
}

/* ---- listening -------------------------------------------------------------------------------------------------- */

static int bind_and_listen(int fd, const struct sockaddr *sa, socklen_t length)
{
    int r = (int)W_RESULT(bind(fd, sa, length));
    return r == 0 ? (int)W_RESULT(listen(fd, BACKLOG)) : r;
}

static int listen_on(const union target *to, bool wildcard)
{
    int fd = new_socket(to->any.sa_family, SOCK_STREAM);
    if (fd < 0)
        return fd;
    int r = set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (r == 0 && wildcard && to->any.sa_family == AF_INET6)
        r = set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (r == 0)
        r = bind_and_listen(fd, &to->any, length_of(to));
    return opened(fd, r);
}

static int listen_inet(const struct w_address *a)
{
    struct targets t;
    int r = find_targets(a, true, &t);
    if (r != 0)
        return r;
    for (int i = 0; i < t.count; i++) {
        r = listen_on(&t.at[i], a->host == W_HOST_NONE);
        if (!not_here(r))
            break;
    }
    return r;
}

/*
 * The path is taken. By a socket that nobody has open any more? A connection of another type than anybody listens with tells, and
 * nobody notices it: -EPROTOTYPE where there is a socket, listening or about to, -ECONNREFUSED where there is none. Two that find
 * the same socket abandoned at the same moment may both take its place, the later one for good.
 */
static bool is_abandoned(const struct sockaddr_un *un, socklen_t length)
{
    struct stat st;
    if (W_RESULT(lstat(un->sun_path, &st)) != 0 || !S_ISSOCK(st.st_mode))
        return false;
    int fd = new_socket(AF_UNIX, SOCK_SEQPACKET);
    if (fd < 0)
        return false;
    long r = w_sys_connect(fd, (const struct sockaddr *)un, length);
    weft_close_fd(fd);
    return r == -ECONNREFUSED;
}

static int listen_unix(const struct w_address *a)
{
    const struct sockaddr_un *un = &a->sa.un;
    int fd = new_socket(AF_UNIX, SOCK_STREAM);
    if (fd < 0)
        return fd;
    int r = bind_and_listen(fd, &a->sa.any, a->length);
    bool path = un->sun_path[0] != '\0';
    if (r == -EADDRINUSE && path && is_abandoned(un, a->length) && W_RESULT(unlink(un->sun_path)) == 0)
        r = bind_and_listen(fd, &a->sa.any, a->length);
    return opened(fd, r);
}

int weft_listen(const char *address)
{
    struct w_address a;
    int r = w_address_parse(address, &a);
    if (r != 0)
        return r;
    return a.host == W_HOST_UNIX ? listen_unix(&a) : listen_inet(&a);
}

/* ---- dialing ---------------------------------------------------------------------------------------------------- */

/* Where nobody listens, the kernel may choose that very port for our end, and TCP then connects the socket to itself. */
static bool is_its_own_peer(int fd)
{
    union target ours = {0}, theirs = {0};
    socklen_t n = sizeof ours, k = sizeof theirs;
    return W_RESULT(getsockname(fd, &ours.any, &n)) == 0 && W_RESULT(getpeername(fd, &theirs.any, &k)) == 0 &&
           memcmp(&ours, &theirs, sizeof ours) == 0;
}

static int dial(const struct sockaddr *sa, socklen_t length)
{
    int fd = new_socket(sa->sa_family, SOCK_STREAM);
    if (fd < 0)
        return fd;
    int r = weft_connect(fd, sa, length);
    if (r == 0 && sa->sa_family != AF_UNIX) {
        r = is_its_own_peer(fd) ? -ECONNREFUSED : 0;
        set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    }
    return opened(fd, r);
}

/* The scope is over, not just the patience of TCP. */
static bool was_cut(int r)
{
    return r == -ECANCELED || (r == -ETIMEDOUT && weft_cancelled() != 0);
}

static int dial_inet(const struct w_address *a)
{
    struct targets t;
    if (a->port == 0 && a->service[0] == '\0')
        return -EINVAL;
    int r = find_targets(a, false, &t), first = 0;
    if (r != 0)
        return r;
    for (int i = 0; i < t.count; i++) {
        r = dial(&t.at[i].any, length_of(&t.at[i]));
        if (r >= 0 || was_cut(r))
            return r;
        if (first == 0 || not_here(first))
            first = r;
    }
    return first;
}

int weft_dial(const char *address)
{
    struct w_address a;
    int r = w_address_parse(address, &a);
    if (r != 0)
        return r;
    return a.host == W_HOST_UNIX ? dial(&a.sa.any, a.length) : dial_inet(&a);
}
