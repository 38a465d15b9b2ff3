/* SPDX-License-Identifier: MIT */
/* The live picture's server, from the side of its clients and of the program that it runs in. The page itself is tests/web. */
#include "peek.h"
#include "webs.h"

/* ---- what is served ---------------------------------------------------------------------------------------------- */

static void ask_for_all(void *arg)
{
    static const char *const files[] = {"/",         "/weft.css", "/weft.js",   "/common.js",
                                        "/scene.js", "/plots.js", "/groups.js", "/record.js"};
    (void)arg;
    start_server();
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        CHECK_EQ(get(files[i], HERE), 200);
    CHECK_EQ(get("/api/info", HERE), 200);
    CHECK(strstr(answer, "\"program\":\"test_web\"") != NULL);
    CHECK_EQ(get("/api/stats", HERE), 200);
    CHECK(strstr(answer, "\"totals\":{") != NULL && strstr(answer, "\"alive\":1,") != NULL);
    CHECK_EQ(get("/api/goroutines", HERE), 200);
    CHECK(strstr(answer, "\"name\":\"main\"") != NULL && strstr(answer, "weft http") == NULL);
    CHECK_EQ(get("/api/trace?seconds=0.05", HERE), 200);
    CHECK(strstr(answer, "\r\n\r\n[") != NULL);
    CHECK_EQ(get("/api/profile?seconds=0.05", HERE), 200);
}

CASE(the_page_and_every_figure_are_served)
{
    run(ask_for_all);
}

CASE(a_second_run_serves_them_too)
{
    run(ask_for_all);
}

static void ask_badly(void *arg)
{
    char long_head[10000];
    (void)arg;
    start_server();
    CHECK_EQ(ask("nonsense\r\n\r\n"), 400);
    CHECK_EQ(ask("GET / HTTP/1.1\r\n\r\n"), 400);
    CHECK_EQ(ask("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
    CHECK_EQ(ask("GET / HTTP/1.1\nHost: 127.0.0.1\n\r\n\r\n"), 400);
    CHECK_EQ(ask("GET / HTTP/2.0\r\n" HERE "\r\n"), 505);
    CHECK_EQ(ask("POST /api/stats HTTP/1.1\r\n" HERE "\r\n"), 405);
    CHECK(strstr(answer, "Allow: GET, HEAD") != NULL);
    CHECK_EQ(ask("GET / HTTP/1.1\r\n" HERE "Content-Length: 5\r\n\r\nhello"), 413);
    CHECK_EQ(ask("GET / HTTP/1.1\r\n" HERE "Transfer-Encoding: chunked\r\n\r\n"), 413);
    CHECK_EQ(get("/../etc/passwd", HERE), 404);
    CHECK_EQ(get("/api/trace?seconds=0", HERE), 400);
    CHECK_EQ(get("/api/trace?seconds=61", HERE), 400);
    CHECK_EQ(get("/api/trace?seconds=1e1", HERE), 400);
    CHECK_EQ(get("/api/profile?seconds=", HERE), 400);
    memset(long_head, 'a', sizeof long_head - 1);
    memcpy(long_head, "GET / HTTP/1.1\r\nX: ", 19);
    long_head[sizeof long_head - 1] = '\0';
    CHECK_EQ(ask(long_head), 431);
}

CASE(bad_requests_are_told_what_is_wrong)
{
    run(ask_badly);
}

static void ask_again(void *arg)
{
    (void)arg;
    start_server();
    int fd = dial();
    for (int i = 0; i < 20; i++)
        CHECK_EQ(ask_on(fd, "GET /api/info HTTP/1.1\r\n" HERE "\r\n"), 200);
    weft_write(fd, "GET /api/info HTTP", 18); /* one that comes in pieces */
    CHECK_EQ(ask_on(fd, "/1.1\r\n" HERE "\r\n"), 200);
    CHECK_EQ(ask_on(fd, "GET /api/info HTTP/1.1\r\n" HERE "Connection: close\r\n\r\n"), 200);
    CHECK_EQ(weft_read(fd, answer, 1), 0);
    weft_close_fd(fd);
    fd = dial();
    static const char head[] = "HEAD / HTTP/1.1\r\n" HERE "Connection: close\r\n\r\n";
    weft_write(fd, head, sizeof head - 1);
    size_t n = 0;
    for (ssize_t k; (k = weft_read(fd, answer + n, ROOM - n)) > 0;)
        n += (size_t)k;
    CHECK(n > 4 && memcmp(answer + n - 4, "\r\n\r\n", 4) == 0);
    weft_close_fd(fd);
}

CASE(a_connection_is_used_again)
{
    run(ask_again);
}

/* ---- who may ask ------------------------------------------------------------------------------------------------- */

static void ask_as_strangers(void *arg)
{
    (void)arg;
    start_server();
    CHECK_EQ(get("/api/stats", "Host: localhost:1\r\n"), 200);
    CHECK_EQ(get("/api/stats", "Host: [::1]:1\r\n"), 200);
    CHECK_EQ(get("/api/stats", "Host: 127.8.9.1\r\n"), 200);
    CHECK_EQ(get("/api/stats", "Host: evil.example\r\n"), 403);
    CHECK_EQ(get("/", "Host: evil.example\r\n"), 403);
    CHECK_EQ(get("/api/stats", "Host: 127.evil.example.com\r\n"), 403);
    CHECK_EQ(get("/api/stats", "Host: 127.0.0.1.evil.example\r\n"), 403);
    CHECK_EQ(get("/api/stats", "Host: localhost.evil.example:80\r\n"), 403);
    CHECK_EQ(get("/api/trace", HERE "Origin: http://evil.example\r\n"), 403);
    CHECK_EQ(get("/api/trace", HERE "Sec-Fetch-Site: cross-site\r\n"), 403);
    CHECK_EQ(get("/api/info", HERE "Origin: http://127.0.0.1:80\r\nSec-Fetch-Site: same-origin\r\n"), 200);
}

CASE(names_of_others_and_pages_of_others_are_refused)
{
    run(ask_as_strangers);
}

static void ask_with_tokens(void *arg)
{
    (void)arg;
    start_server();
    CHECK_EQ(get("/", HERE), 200);
    CHECK_EQ(get("/api/stats", HERE), 401);
    CHECK_EQ(get("/api/stats?token=opensesam", HERE), 401);
    CHECK_EQ(get("/api/stats?token=opensesamf", HERE), 401);
    CHECK_EQ(get("/api/stats?token=opensesame", HERE), 200);
    CHECK_EQ(get("/api/stats", HERE "Authorization: Bearer opensesame\r\n"), 200);
    CHECK_EQ(get("/api/stats", "Host: far.example\r\nAuthorization: Bearer opensesame\r\n"), 200);
}

CASE(with_a_token_nobody_gets_in_without_it)
{
    setenv("WEFT_HTTP_TOKEN", "opensesame", 1);
    run(ask_with_tokens);
    unsetenv("WEFT_HTTP_TOKEN");
}

static void listen_to_all(void *arg)
{
    (void)arg;
    port = weft_http_start("0.0.0.0:0");
    CHECK(port > 0);
    CHECK_EQ(get("/api/stats", HERE), 401);
}

static void run_for_all(void)
{
    run(listen_to_all);
}

CASE(an_address_that_others_reach_has_a_token)
{
    char said[512];
    CHECK_EQ(check_child(run_for_all, said, sizeof said), 0);
    const char *token = strstr(said, "/?token=");
    CHECK(token != NULL && strspn(token + 8, "0123456789abcdef") == 32);
}

/* ---- the program around it --------------------------------------------------------------------------------------- */

static void count_with_guests(void *arg)
{
    (void)arg;
    CHECK_EQ(weft_count(), 1);
    start_server();
    int fd = dial();
    CHECK_EQ(ask_on(fd, "GET /api/info HTTP/1.1\r\n" HERE "\r\n"), 200);
    CHECK_EQ(weft_count(), 1);
    CHECK_EQ(weft_http_start(NULL), -EBUSY);
    CHECK_EQ(weft_http_stop(), 0);
    CHECK_EQ(weft_http_stop(), -ESRCH);
    CHECK_EQ(weft_read(fd, answer, 1), 0);
    weft_close_fd(fd);
    start_server();
    CHECK_EQ(get("/api/info", HERE), 200);
    CHECK_EQ(weft_count(), 1);
}

CASE(its_goroutines_count_for_nobody)
{
    run(count_with_guests);
}

static void wait_in_vain(void *arg)
{
    (void)arg;
    start_server();
    int fd = dial(); /* somebody is connected, and waits for nothing */
    CHECK_EQ(ask_on(fd, "GET /api/stats HTTP/1.1\r\n" HERE "\r\n"), 200);
    weft_recv(NULL, NULL);
}

static void deadlock(void)
{
    CHECK_EQ(weft_run(wait_in_vain, NULL), -EDEADLK);
}

CASE(a_deadlock_is_still_one)
{
    char said[8192];
    CHECK_EQ(check_child(deadlock, said, sizeof said), 0);
    CHECK(strstr(said, "deadlock") != NULL && strstr(said, "weft http") == NULL);
}

static void leave(void *arg)
{
    (void)arg;
    weft_sleep(WEFT_MSEC);
}

static void exit_main(void *arg)
{
    (void)arg;
    start_server();
    weft_go(leave, NULL);
    weft_exit();
}

CASE(a_run_ends_after_its_last_goroutine)
{
    run(exit_main);
}

static void end_in_the_middle(void *arg)
{
    (void)arg;
    start_server();
    int fd = dial();
    static const char request[] = "GET /api/trace?seconds=30 HTTP/1.1\r\n" HERE "\r\n";
    weft_write(fd, request, sizeof request - 1);
    weft_sleep(50 * WEFT_MSEC);
    CHECK_EQ(get("/api/trace?seconds=1", HERE), 409);
    close(fd);
}

/* The harness looks for descriptors that are left. */
CASE(a_run_may_end_while_a_trace_is_made)
{
    run(end_in_the_middle);
    run(end_in_the_middle);
}

/* Who serves, and how many of them are not urgent. */
static void count_servers(struct w_g *g, void *arg)
{
    struct w_g copy; /* it may be running, or about to end */
    int *counts = arg;
    w_peek_words(&copy, g, sizeof copy);
    bool alive = ld_relaxed(&copy.state) != W_IDLE && ld_relaxed(&copy.state) != W_DEAD;
    if (!alive || !(copy.flags & W_G_SERVICE))
        return;
    counts[0]++;
    counts[1] += ld_relaxed(&copy.level) != W_HIGH;
}

static void serve_low(void *arg)
{
    int counts[2] = {0};
    (void)arg;
    CHECK_EQ(weft_set_priority(WEFT_LOW), 0); /* of which it inherits nothing */
    start_server();
    int fd = dial();
    CHECK_EQ(ask_on(fd, "GET /api/info HTTP/1.1\r\n" HERE "\r\n"), 200);
    w_gs_each(count_servers, counts);
    CHECK(counts[0] >= 2); /* who accepts, and who answers */
    CHECK_EQ(counts[1], 0);
    weft_close_fd(fd);
}

CASE(whoever_serves_is_urgent)
{
    run(serve_low);
}

static volatile bool hogging;

static void hog(void *arg)
{
    (void)arg;
    while (hogging)
        ;
}

static void ask_beside_hogs(void *arg)
{
    (void)arg;
    start_server();
    hogging = true;
    for (int i = 0; i < 4; i++)
        weft_go(hog, NULL);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(get("/api/stats", HERE), 200);
    hogging = false;
}

CASE(it_answers_while_others_compute)
{
    if (!check_under_tsan()) /* there nobody is stopped by signal */
        run(ask_beside_hogs);
}

/* ---- those who only sit there ------------------------------------------------------------------------------------ */

static void crowd(void *arg)
{
    int fds[40];
    (void)arg;
    start_server();
    for (int i = 0; i < 40; i++) {
        fds[i] = dial();
        weft_write(fds[i], "GET / HT", 8);
    }
    for (int i = 0; i < 5; i++)
        CHECK_EQ(get("/api/info", HERE), 200);
    for (int i = 0; i < 40; i++)
        weft_close_fd(fds[i]);
    CHECK_EQ(get("/api/info", HERE), 200);
}

CASE(nobody_keeps_others_out_by_sitting_there)
{
    run(crowd);
}

#define INFO "GET /api/info HTTP/1.1\r\n" HERE "\r\n"

enum { ROOMY = 15, PLACES = 24 }; /* so many, and nobody has to leave for the next; so many at the most */

/* With what is there already. */
static bool is_over(int fd)
{
    return recv(fd, answer, ROOM - 1, MSG_DONTWAIT) == 0;
}

static void let_others_sit(void *arg)
{
    int idle[ROOMY], gone = 0;
    (void)arg;
    start_server();
    for (int i = 0; i < ROOMY; i++) {
        idle[i] = dial();
        CHECK_EQ(ask_on(idle[i], INFO), 200);
        weft_sleep(WEFT_MSEC);
    }
    int asks = dial();
    weft_write(asks, "GET /api/info HT", 16);
    weft_sleep(50 * WEFT_MSEC);
    CHECK_EQ(get("/api/info", HERE), 200);
    CHECK_EQ(weft_read(idle[0], answer, 1), 0); /* it has been idle for longest */
    for (int i = 1; i < ROOMY; i++)
        gone += is_over(idle[i]);
    CHECK_EQ(gone, 0);
    CHECK_EQ(ask_on(asks, "TP/1.1\r\n" HERE "\r\n"), 200);
    for (int i = 0; i < ROOMY; i++)
        weft_close_fd(idle[i]);
    weft_close_fd(asks);
}

CASE(who_sits_there_leaves_before_who_is_asking)
{
    run(let_others_sit);
}

/* A unix socket takes some 200 KB, whatever happens: these ask for more, and read nothing. */
enum { FILES = 40 };

static char path[64];

static void fill_all_places(int *fds)
{
    char requests[FILES * 64] = "";
    for (int i = 0; i < FILES; i++)
        strcat(requests, "GET /weft.css HTTP/1.1\r\n" HERE "\r\n");
    snprintf(path, sizeof path, "unix:@weft-test-%d", (int)getpid());
    CHECK_EQ(weft_http_start(path), 0);
    for (int i = 0; i < PLACES; i++) {
        fds[i] = weft_dial(path);
        CHECK(fds[i] >= 0);
        weft_write(fds[i], requests, strlen(requests));
        while (recv(fds[i], answer, 1, MSG_DONTWAIT | MSG_PEEK) <= 0)
            weft_sleep(WEFT_MSEC);
    }
}

/* How many answers come until there are no more of them. */
static int count_answers(int fd)
{
    int n = 0;
    size_t have = 0;
    for (ssize_t k; n < FILES && (k = weft_read(fd, answer + have, ROOM - 1 - have)) > 0;) {
        have += (size_t)k;
        answer[have] = '\0';
        for (char *end; (end = strstr(answer, "\r\n\r\n")) != NULL; n++) {
            const char *length = strstr(answer, "Content-Length: ");
            size_t size = (size_t)(end + 4 - answer) + strtoul(length + 16, NULL, 10);
            if (size > have)
                break;
            memmove(answer, answer + size, have - size + 1);
            have -= size;
        }
    }
    return n;
}

static void answer_all(void *arg)
{
    int fds[PLACES], late, complete = 0;
    (void)arg;
    fill_all_places(fds);
    late = weft_dial(path);
    CHECK_EQ(ask_on(late, INFO), 503);
    weft_close_fd(late);
    for (int i = 0; i < PLACES; i++) {
        complete += count_answers(fds[i]) == FILES;
        weft_close_fd(fds[i]);
    }
    CHECK_EQ(complete, PLACES);
}

CASE(who_is_being_answered_leaves_for_nobody)
{
    run(answer_all);
}

/* One that found no place while the listener was there that asks for a token. */
static void come_between(void *arg)
{
    int fds[PLACES];
    (void)arg;
    fill_all_places(fds);
    int late = weft_dial(path);
    CHECK(late >= 0);
    weft_sleep(50 * WEFT_MSEC);
    CHECK_EQ(weft_http_stop(), 0);
    unsetenv("WEFT_HTTP_TOKEN");
    start_server();
    CHECK(ask_on(late, INFO) != 200);
    CHECK_EQ(get("/api/info", HERE), 200);
    weft_close_fd(late);
    for (int i = 0; i < PLACES; i++)
        weft_close_fd(fds[i]);
}

CASE(who_came_to_a_listener_with_a_token_is_no_guest_of_one_without)
{
    setenv("WEFT_HTTP_TOKEN", "opensesame", 1);
    run(come_between);
    unsetenv("WEFT_HTTP_TOKEN");
}
