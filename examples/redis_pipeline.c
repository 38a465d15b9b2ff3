/* SPDX-License-Identifier: MIT */
/*
 * A client of Redis whose goroutines share one connection. Give it the address of a server, then how many goroutines, 64
 * otherwise, and how often each writes, reads and counts, 100 times otherwise:
 *
 *     $ cc redis_pipeline.c -lweft -o redis_pipeline && ./redis_pipeline 127.0.0.1:6379
 *     19200 commands of 64 goroutines over one connection: 0 wrong replies
 *     counted to 6400
 *     312445 commands/s, 27 in a write
 *
 *      callers ──calls──> writer ══ connection ══> server      The writer sends what there is in one piece, and notes the
 *         ^                 │ pending                │         calls in the order that it sends them in. Redis replies in
 *         └───── done ─── reader <══ connection ═════┘         that order, so the reader gives each reply to the next.
 */
#include <stdatomic.h>
#include <unistd.h>
#include "server.h"

enum { BATCH = 64, PENDING = 1024, COMMAND_MAX = 256, BUFFER = BATCH * COMMAND_MAX };
_Static_assert(BATCH < PENDING, "a batch that has not been sent must not fill the channel that waits for replies");

/* A command and its reply, be it text or a number. They outlive the scope, so a call that was cut hurts nobody. */
struct call {
    char command[COMMAND_MAX], reply[COMMAND_MAX];
    size_t size;
    weft_wg done;
};

static struct {
    int fd;
    weft_scope scope;
    weft_chan_of(struct call *) calls;
    weft_chan_of(struct call *) pending;
    size_t begin, end; /* in[begin..end) has come and is not used yet */
    char in[BUFFER];   /* the reader's */
} redis;

static int goroutines = 64, times = 100;
static char counter[32]; /* the key that all count on */
static weft_wg working;
static atomic_long wrong, commands, writes;

/* ---- the connection --------------------------------------------------------------------------------------------- */

/* Takes this call and those that wait behind it; how many bytes, or an error. */
static ssize_t collect(struct call *call, char *out)
{
    ssize_t size = 0;
    int n = 0, err;
    do {
        memcpy(out + size, call->command, call->size);
        size += (ssize_t)call->size;
        err = weft_put(redis.pending, call);
    } while (err == 0 && ++n < BATCH && weft_try_take(redis.calls, &call) == 0);
    atomic_fetch_add(&commands, n);
    return err == 0 ? size : err;
}

static void write_calls(void *arg)
{
    char out[BUFFER];
    struct call *call;
    (void)arg;
    while (weft_take(redis.calls, &call) == 0) {
        weft_yield(); /* others that are about to call do so first: one write for all */
        ssize_t size = collect(call, out);
        if (size < 0 || weft_write(redis.fd, out, (size_t)size) != size)
            weft_scope_cancel(&redis.scope, -EPIPE);
        atomic_fetch_add(&writes, 1);
    }
    weft_close_of(redis.pending);
}

/* More of what the server sends. */
static int fill(void)
{
    memmove(redis.in, redis.in + redis.begin, redis.end -= redis.begin);
    redis.begin = 0;
    ssize_t n = weft_read(redis.fd, redis.in + redis.end, sizeof redis.in - redis.end);
    if (n <= 0)
        return n < 0 ? (int)n : -EPIPE;
    redis.end += (size_t)n;
    return 0;
}

/* A line of at most COMMAND_MAX - 1 bytes, without its CRLF. */
static int read_line(char *line)
{
    const char *at, *lf;
    while (at = redis.in + redis.begin, (lf = memchr(at, '\n', redis.end - redis.begin)) == NULL) {
        int err = redis.end - redis.begin > COMMAND_MAX ? -EPROTO : fill();
        if (err != 0)
            return err;
    }
    size_t size = (size_t)(lf - at);
    if (size == 0 || lf[-1] != '\r' || size > COMMAND_MAX)
        return -EPROTO;
    snprintf(line, COMMAND_MAX, "%.*s", (int)size - 1, at);
    redis.begin += size + 1;
    return 0;
}

/* +text, -error, :number, or $size and a line with so many bytes. Arrays and what holds line ends are left out. */
static int read_reply(char *reply)
{
    char line[COMMAND_MAX];
    int err = read_line(line);
    if (err != 0 || line[0] == '\0' || strchr("+-:$", line[0]) == NULL)
        return err != 0 ? err : -EPROTO;
    if (line[0] != '$' || line[1] == '-') {
        strcpy(reply, line + (line[0] != '-'));
        return 0;
    }
    err = read_line(reply);
    return err == 0 && strlen(reply) != strtoul(line + 1, NULL, 10) ? -EPROTO : err;
}

static void read_replies(void *arg)
{
    struct call *call;
    int err = 0;
    (void)arg;
    while (err == 0 && weft_take(redis.pending, &call) == 0) {
        err = read_reply(call->reply);
        if (err == 0)
            weft_wg_done(&call->done);
    }
    if (err != 0)
        weft_scope_cancel(&redis.scope, err);
}

/* ---- calls ------------------------------------------------------------------------------------------------------ */

/* The words, up to a NULL, as Redis wants them: how many, then each with its size. Then the reply is in the call. */
static int ask(struct call *call, const char *const *words)
{
    int n = 0;
    while (words[n] != NULL)
        n++;
    call->size = (size_t)snprintf(call->command, COMMAND_MAX, "*%d\r\n", n);
    for (int i = 0; i < n && call->size < COMMAND_MAX; i++)
        call->size += (size_t)snprintf(call->command + call->size, COMMAND_MAX - call->size, "$%zu\r\n%s\r\n",
                                       strlen(words[i]), words[i]);
    if (call->size >= COMMAND_MAX)
        return -EMSGSIZE;
    weft_wg_add(&call->done, 1);
    int err = weft_put(redis.calls, call);
    return err != 0 ? err : weft_wg_wait(&call->done);
}

#define ASK(call, ...) ask(call, (const char *const[]){__VA_ARGS__, NULL})

static void expect(const struct call *call, const char *reply)
{
    atomic_fetch_add(&wrong, strcmp(call->reply, reply) != 0);
}

/* Each has a key of its own, which the server forgets after a minute: a reply that went to somebody else shows. */
static void work(void *arg)
{
    struct call *call = arg;
    char key[64], value[32];
    snprintf(key, sizeof key, "weft:%d:%llu", getpid(), (unsigned long long)weft_id());
    for (int i = 0; i < times; i++) {
        snprintf(value, sizeof value, "%d", i);
        if (ASK(call, "SET", key, value, "EX", "60") != 0)
            return;
        expect(call, "OK");
        if (ASK(call, "GET", key) != 0)
            return;
        expect(call, value);
        if (ASK(call, "INCR", counter) != 0)
            return;
    }
    weft_wg_done(&working);
}

/* ---- all together ----------------------------------------------------------------------------------------------- */

static void report(struct call *call, int64_t took)
{
    long n = atomic_load(&commands), per_write = n / atomic_load(&writes);
    printf("%ld commands of %d goroutines over one connection: %ld wrong replies\n", n, goroutines,
           atomic_load(&wrong));
    if (ASK(call, "GET", counter) == 0)
        printf("counted to %s\n", call->reply);
    printf("%.0f commands/s, %ld in a write\n", (double)n * WEFT_SEC / (double)took, per_write);
    ASK(call, "DEL", counter);
}

/* Where it ends early, the scope is over: be it that the connection is gone already. */
static void start_all(struct call *calls)
{
    int err = weft_scope_go(&redis.scope, write_calls, NULL);
    if (err == 0)
        err = weft_scope_go(&redis.scope, read_replies, NULL);
    for (int i = 0; err == 0 && i < goroutines; i++)
        err = weft_scope_go(&redis.scope, work, &calls[i]);
    if (err != 0)
        weft_scope_cancel(&redis.scope, err);
}

static void start(void *address)
{
    struct call *calls = calloc((size_t)goroutines, sizeof *calls);
    must(calls == NULL ? -ENOMEM : 0, "calls");
    redis.fd = must(weft_dial(address), address);
    redis.calls = weft_make(struct call *, BATCH);
    redis.pending = weft_make(struct call *, PENDING);
    must(weft_scope_open(&redis.scope, weft_now() + 60 * WEFT_SEC), "weft_scope_open");
    int64_t began = weft_now();
    snprintf(counter, sizeof counter, "weft:%d", getpid());
    weft_wg_add(&working, goroutines);
    start_all(calls);
    if (weft_wg_wait(&working) == 0)
        report(calls, weft_now() - began);
    weft_close_of(redis.calls);
    must(weft_scope_close(&redis.scope), address);
    weft_free_of(redis.calls);
    weft_free_of(redis.pending);
    weft_close_fd(redis.fd);
    free(calls);
}

int main(int argc, char **argv)
{
    goroutines = argc > 2 ? atoi(argv[2]) : goroutines;
    times = argc > 3 ? atoi(argv[3]) : times;
    if (argc < 2 || goroutines < 1 || times < 1) {
        fprintf(stderr, "usage: redis_pipeline ADDRESS [GOROUTINES [TIMES]]\n");
        return 2;
    }
    return weft_run(start, argv[1]) == 0 ? 0 : 1;
}
