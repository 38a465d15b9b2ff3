/* SPDX-License-Identifier: MIT */
/* Input and output beside everything else: foreign threads, the end of a run, busy processors, deadlocks, channels. */
#include "io.h"
#include "chans.h"

/* ---- foreign threads -------------------------------------------------------------------------------------------- */

static void *thread_echo(void *arg)
{
    int *fd = arg;
    char text[64];
    ssize_t n;
    while ((n = weft_read(fd[1], text, sizeof text)) > 0)
        CHECK_EQ(weft_write(fd[1], text, (size_t)n), n);
    CHECK_EQ(n, 0);
    return NULL;
}

static void thread_echo_main(void *arg)
{
    int fd[2];
    pthread_t thread;
    char text[64];
    (void)arg;
    tcp_pair(fd);
    CHECK_EQ(pthread_create(&thread, NULL, thread_echo, fd), 0);
    for (int i = 0; i < scaled(500); i++) {
        CHECK_EQ(weft_write(fd[0], &i, sizeof i), sizeof i);
        CHECK_EQ(weft_read(fd[0], text, sizeof text), sizeof i);
        CHECK(memcmp(text, &i, sizeof i) == 0);
    }
    CHECK_EQ(shutdown(fd[0], SHUT_WR), 0);
    join_in_region(&thread, 1);
    close_both(fd);
}

CASE(a_foreign_thread_talks_to_a_goroutine)
{
    run_each_procs(thread_echo_main);
}

struct thread_call {
    struct one_call c;
    _Atomic int about_to;
    pthread_t thread;
};

static void *thread_calls(void *arg)
{
    struct thread_call *t = arg;
    t->about_to = 1;
    t->c.result = t->c.fn(&t->c);
    return NULL;
}

static void thread_begin(struct thread_call *t)
{
    CHECK_EQ(pthread_create(&t->thread, NULL, thread_calls, t), 0);
    CHECK(reaches(&t->about_to, 1, 60));
    sleep_in_region(3); /* it most likely waits by now; what is checked holds if it does not */
}

static long thread_end(struct thread_call *t)
{
    join_in_region(&t->thread, 1);
    return t->c.result;
}

static void thread_waits(const struct stream_kind *kind, int fd[2])
{
    struct thread_call read = {.c = {.fn = call_read, .fd = fd[0]}}, closed = read;
    struct thread_call watch = {.c = {.fn = call_wait, .fd = fd[0], .flags = POLLIN}};
    (void)kind;
    thread_begin(&watch);
    CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
    CHECK_EQ(thread_end(&watch), POLLIN);
    CHECK_EQ(weft_read(fd[0], read.c.text, 64), 3);
    thread_begin(&read);
    CHECK_EQ(weft_write(fd[1], "abc", 3), 3);
    CHECK_EQ(thread_end(&read), 3);
    thread_begin(&closed);
    struct one_call beside = {.fn = call_read, .fd = fd[0]};
    call_begin(&beside);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    CHECK_EQ(thread_end(&closed), -EBADF);
    CHECK_EQ(call_end(&beside), -EBADF);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
}

CASE(a_foreign_thread_waits_and_is_woken)
{
    on_each_pair_and_procs(thread_waits);
}

static void *thread_closes(void *arg)
{
    CHECK_EQ(weft_close_fd(*(int *)arg), 0);
    return NULL;
}

static void thread_closes_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < scaled(50); i++) {
        int fd[2];
        pthread_t thread;
        unix_pair(fd);
        struct one_call c = {.fn = call_read, .fd = fd[0]};
        call_begin(&c);
        CHECK_EQ(pthread_create(&thread, NULL, thread_closes, &fd[0]), 0);
        CHECK_EQ(call_end(&c), -EBADF);
        join_in_region(&thread, 1);
        CHECK_EQ(weft_close_fd(fd[1]), 0);
    }
}

CASE(a_foreign_thread_closes)
{
    run_each_procs(thread_closes_main);
}

static void *thread_deadline(void *arg)
{
    int *fd = arg;
    weft_scope s;
    char c;
    CHECK_EQ(weft_scope_open(&s, weft_now() + 3 * WEFT_MSEC), 0);
    CHECK_EQ(weft_read(fd[0], &c, 1), -ETIMEDOUT);
    CHECK_EQ(weft_wait_fd(fd[0], POLLIN), -ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    return NULL;
}

static void thread_deadline_main(void *arg)
{
    int fd[2];
    pthread_t thread;
    (void)arg;
    pipe_pair(fd);
    CHECK_EQ(pthread_create(&thread, NULL, thread_deadline, fd), 0);
    join_in_region(&thread, 1);
    close_both(fd);
}

CASE(a_foreign_thread_has_deadlines)
{
    run_each_procs(thread_deadline_main);
}

static void no_run(void)
{
    int fd[2];
    char c;
    pipe_pair(fd);
    CHECK_EQ(weft_write(fd[1], "x", 1), -EPERM);
    CHECK_EQ(weft_read(fd[0], &c, 1), -EPERM);
    CHECK_EQ(weft_wait_fd(fd[0], POLLIN), -EPERM);
    CHECK_EQ(weft_close_fd(fd[0]), 0);
    CHECK_EQ(weft_close_fd(fd[1]), 0);
}

static void do_nothing(void *arg)
{
    (void)arg;
}

CASE(without_a_run_there_is_no_waiting)
{
    no_run();
    CHECK_EQ(run_on(2, do_nothing, NULL), 0);
    no_run();
}

/* The whole run is asleep, and a number that was known is another's by now. */
static void *thread_reads_again(void *arg)
{
    for (int i = 0; i < 2; i++) {
        int fd[2];
        pipe_pair(fd);
        struct thread_call read = {.c = {.fn = call_read, .fd = fd[0]}};
        CHECK_EQ(pthread_create(&read.thread, NULL, thread_calls, &read), 0);
        usleep(50000);
        CHECK_EQ(write(fd[1], "x", 1), 1);
        pthread_join(read.thread, NULL);
        CHECK_EQ(read.c.result, 1);
        close(fd[0]);
        close(fd[1]);
        if (i == 0)
            sleep(4); /* until the monitor sleeps for good */
    }
    return arg;
}

static void asleep_main(void *arg)
{
    pthread_t thread;
    (void)arg;
    CHECK_EQ(pthread_create(&thread, NULL, thread_reads_again, NULL), 0);
    join_in_region(&thread, 1);
}

CASE(a_foreign_thread_is_heard_though_all_sleep)
{
    CHECK_EQ(run_on(2, asleep_main, NULL), 0);
}

/* ---- the end of a run ------------------------------------------------------------------------------------------- */

static void wait_for_ever(void *arg)
{
    struct one_call *c = arg;
    ++*(_Atomic int *)&c->flags;
    c->fn(c);
    check_fail(__FILE__, __LINE__, "a wait of a run that has ended came back");
}

struct last_words {
    int fd[2], full[2];
    struct thread_call thread;
    struct one_call read, write, watch;
};

static void leave_main(void *arg)
{
    struct last_words *l = arg;
    struct one_call *calls[] = {&l->read, &l->write, &l->watch};
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(weft_go(wait_for_ever, calls[i]), 0);
        CHECK(reaches((_Atomic int *)&calls[i]->flags, i == 2 ? POLLIN + 1 : 1, 60));
    }
    thread_begin(&l->thread);
    let_others_run();
}

/* The same descriptors are used in the next run: nothing of the last is left. */
CASE(a_run_ends_while_many_wait_and_the_next_begins)
{
    EACH_PROCS(p)
    {
        struct last_words l = {0};
        unix_pair(l.fd);
        unix_pair(l.full);
        fill(l.full[1]);
        for (int i = 0; i < 3; i++) {
            l.read = (struct one_call){.fn = call_read, .fd = l.fd[0]};
            l.write = (struct one_call){.fn = call_write, .fd = l.full[1]};
            l.watch = (struct one_call){.fn = call_wait, .fd = l.fd[0], .flags = POLLIN};
            l.thread = (struct thread_call){.c = {.fn = call_read, .fd = l.fd[0]}};
            CHECK_EQ(run_on(p, leave_main, &l), 0);
            pthread_join(l.thread.thread, NULL);
            CHECK(l.thread.c.result == -ECANCELED || l.thread.c.result == -EPERM);
            CHECK_EQ(recv(l.fd[0], &(char){0}, 1, MSG_DONTWAIT), -1); /* nothing came, */
            CHECK_EQ(write(l.fd[1], "x", 1), 1);
            CHECK_EQ(read(l.fd[0], &(char){0}, 1), 1); /* nothing took it */
        }
        for (int i = 0; i < 2; i++) {
            close(l.fd[i]);
            close(l.full[i]);
        }
    }
}

/* ---- busy processors -------------------------------------------------------------------------------------------- */

static _Atomic bool over;

static void hog(void *arg)
{
    bool yields = arg != NULL;
    while (!over) {
        spin_for(20000);
        if (yields)
            weft_yield();
    }
}

struct ping {
    int fd[2];
    weft_wg ended;
    int n;
};

static void pong(void *arg)
{
    struct ping *p = arg;
    char c;
    while (weft_read(p->fd[1], &c, 1) == 1)
        CHECK_EQ(weft_write(p->fd[1], &c, 1), 1);
    weft_wg_done(&p->ended);
}

static void play(struct ping *p)
{
    char c = 'x';
    tcp_pair(p->fd);
    weft_wg_add(&p->ended, 1);
    CHECK_EQ(weft_go(pong, p), 0);
    for (int i = 0; i < p->n; i++) {
        CHECK_EQ(weft_write(p->fd[0], &c, 1), 1);
        CHECK_EQ(weft_read(p->fd[0], &c, 1), 1);
    }
    CHECK_EQ(shutdown(p->fd[0], SHUT_WR), 0);
    CHECK_EQ(weft_wg_wait(&p->ended), 0);
    close_both(p->fd);
}

static void hog_main(void *arg)
{
    struct ping p = {.n = scaled(200)};
    over = false;
    CHECK_EQ(weft_go(hog, arg), 0);
    play(&p);
    over = true;
}

CASE(messages_come_through_beside_one_that_computes)
{
    CHECK_EQ(run_on(2, hog_main, NULL), 0);
    CHECK_EQ(run_on(2, hog_main, &over), 0);
    CHECK_EQ(run_on(1, hog_main, &over), 0);
}

/* Only a foreign process speaks: who polls, if the only processor never idles? */
static void outside_main(void *arg)
{
    int fd[2];
    unix_pair(fd);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        usleep(20000);
        _exit(write(fd[1], "hello", 5) != 5);
    }
    over = false;
    CHECK_EQ(weft_go(hog, arg), 0);
    struct one_call c = {.fn = call_read, .fd = fd[0]};
    CHECK_EQ(call_read(&c), 5);
    over = true;
    int status = -1;
    waitpid(pid, &status, 0);
    CHECK_EQ(status, 0);
    close_both(fd);
}

CASE(a_busy_processor_hears_from_outside)
{
    if (check_under_tsan()) {
        skipped("TSan and fork with threads");
        return;
    }
    EACH_PROCS(p) CHECK_EQ(run_on(p, outside_main, &over), 0);
}

/* ---- deadlocks -------------------------------------------------------------------------------------------------- */

static void *write_after_a_while(void *arg)
{
    usleep(100000);
    CHECK_EQ(write(*(int *)arg, "x", 1), 1); /* no call into the runtime: only the kernel tells */
    return NULL;
}

static void alone_main(void *arg)
{
    int fd[2];
    char c;
    pthread_t thread;
    (void)arg;
    pipe_pair(fd);
    CHECK_EQ(pthread_create(&thread, NULL, write_after_a_while, &fd[1]), 0);
    CHECK_EQ(weft_read(fd[0], &c, 1), 1);
    join_in_region(&thread, 1);
    close_both(fd);
}

CASE(waiting_for_a_descriptor_is_no_deadlock)
{
    run_each_procs(alone_main);
}

static void recv_for_ever(void *arg)
{
    weft_recv(arg, NULL);
}

static void read_and_send(void *arg)
{
    struct one_call *c = arg;
    CHECK_EQ(call_read(c), 1);
    weft_wg_done(&c->ended);
}

/* All wait for channels and locks, and one for a descriptor. */
static void one_of_many_main(void *arg)
{
    int fd[2];
    pthread_t thread;
    weft_chan *ch = ints(0);
    (void)arg;
    pipe_pair(fd);
    struct one_call c = {.fd = fd[0]};
    weft_wg_add(&c.ended, 1);
    for (int i = 0; i < 10; i++)
        CHECK_EQ(weft_go(recv_for_ever, ch), 0);
    CHECK_EQ(weft_go(read_and_send, &c), 0);
    CHECK_EQ(pthread_create(&thread, NULL, write_after_a_while, &fd[1]), 0);
    CHECK_EQ(weft_wg_wait(&c.ended), 0);
    join_in_region(&thread, 1);
    CHECK_EQ(weft_close(ch), 0);
    CHECK(others_have_ended());
    weft_chan_free(ch);
    close_both(fd);
}

CASE(one_that_waits_for_a_descriptor_keeps_the_run_alive)
{
    run_each_procs(one_of_many_main);
}

static void dead_after_io_main(void *arg)
{
    int fd[2];
    weft_scope s;
    char c;
    (void)arg;
    pipe_pair(fd);
    CHECK_EQ(weft_scope_open(&s, weft_now() + WEFT_MSEC), 0);
    CHECK_EQ(weft_read(fd[0], &c, 1), -ETIMEDOUT);
    CHECK_EQ(weft_scope_close(&s), -ETIMEDOUT);
    CHECK_EQ(weft_write(fd[1], "x", 1), 1);
    CHECK_EQ(weft_read(fd[0], &c, 1), 1);
    close_both(fd);
    weft_recv(NULL, NULL);
}

static void dead_after_io(void)
{
    EACH_PROCS(p) CHECK_EQ(run_on(p, dead_after_io_main, NULL), -EDEADLK);
}

CASE(a_deadlock_after_input_is_found)
{
    static char text[64 << 10];
    CHECK(child_is_well(dead_after_io, text, sizeof text));
    CHECK(strstr(text, "deadlock") != NULL || strstr(text, "asleep") != NULL);
}

/* ---- with channels ---------------------------------------------------------------------------------------------- */

struct relay {
    int fd[2];
    weft_chan *in, *out;
    int n;
};

static void from_chan(void *arg)
{
    struct relay *r = arg;
    for (int v; (v = take(r->in)) >= 0;)
        CHECK_EQ(weft_write(r->fd[1], &v, sizeof v), sizeof v);
    CHECK_EQ(weft_close_fd(r->fd[1]), 0);
}

static void to_chan(void *arg)
{
    struct relay *r = arg;
    int v;
    while (weft_recv_from(r->fd[0], &v, sizeof v, MSG_WAITALL, NULL, NULL) == sizeof v)
        CHECK_EQ(put(r->out, v), 0);
    CHECK_EQ(weft_close(r->out), 0);
    CHECK_EQ(weft_close_fd(r->fd[0]), 0);
}

static void feed(void *arg)
{
    struct relay *r = arg;
    for (int i = 0; i < r->n; i++)
        CHECK_EQ(put(r->in, i), 0);
    CHECK_EQ(weft_close(r->in), 0);
}

/* Numbers go through twenty sockets and the channels between them. */
static void relay_main(void *arg)
{
    enum { STAGES = 20 };
    struct relay stages[STAGES];
    weft_chan *ch[STAGES + 1];
    int n = scaled(1000), v, sum = 0;
    (void)arg;
    for (int i = 0; i <= STAGES; i++)
        ch[i] = ints(i % 3 * 4);
    for (int i = 0; i < STAGES; i++) {
        stages[i] = (struct relay){.in = ch[i], .out = ch[i + 1], .n = n};
        (i % 2 ? unix_pair : tcp_pair)(stages[i].fd);
        CHECK_EQ(weft_go(from_chan, &stages[i]), 0);
        CHECK_EQ(weft_go(to_chan, &stages[i]), 0);
    }
    CHECK_EQ(weft_go(feed, &stages[0]), 0);
    while ((v = take(ch[STAGES])) >= 0)
        CHECK_EQ(v, sum++);
    CHECK_EQ(sum, n);
    CHECK(others_have_ended());
    free_all(ch, STAGES + 1);
}

CASE(channels_and_sockets_work_together)
{
    run_each_procs(relay_main);
}
