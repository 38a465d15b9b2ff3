/* SPDX-License-Identifier: MIT */
/* libcurl's easy interface, which uses non-blocking sockets and poll of several, against a server of Weft's own. */
#include "clients.h"
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

enum { CLIENTS = 50, ROUNDS = 10, LARGE = 200000, SLOW_MS = 50 };

static int listener;
static int port;

/* ---- the server: GET /SIZE/DELAY is answered with so many bytes after so many milliseconds ----------------------- */

static ssize_t request(int fd, char *text, size_t size)
{
    size_t n = 0;
    while (n + 1 < size) {
        ssize_t r = weft_read(fd, text + n, size - 1 - n);
        if (r <= 0)
            return r;
        n += (size_t)r;
        text[n] = '\0';
        if (strstr(text, "\r\n\r\n") != NULL)
            return (ssize_t)n;
    }
    return -1;
}

static bool answer(int fd, int size, int delay)
{
    char head[128], *body = malloc((size_t)size + 1);
    memset(body, 'a' + size % 26, (size_t)size);
    weft_sleep(delay * WEFT_MSEC);
    int n = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size);
    bool sent = weft_write(fd, head, (size_t)n) == n && weft_write(fd, body, (size_t)size) == size;
    free(body);
    return sent;
}

static void serve(void *arg)
{
    int fd = *(int *)arg, size, delay;
    char text[2048];
    while (request(fd, text, sizeof text) > 0)
        if (sscanf(text, "GET /%d/%d", &size, &delay) != 2 || !answer(fd, size, delay))
            break;
    weft_close_fd(fd);
}

static void server(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = weft_accept(listener, NULL, NULL);
        if (fd < 0)
            return;
        CHECK_EQ(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
        CHECK_EQ(weft_go_copy(serve, &fd, sizeof fd), 0);
    }
}

static void server_opens(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_EQ(bind(listener, (struct sockaddr *)&at, n), 0);
    CHECK_EQ(listen(listener, 128), 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&at, &n), 0);
    port = ntohs(at.sin_port);
}

/* ---- the clients ------------------------------------------------------------------------------------------------ */

struct body {
    int size;
    bool right; /* every byte is what it should be */
    char letter;
};

static size_t take(char *text, size_t one, size_t n, void *arg)
{
    struct body *body = arg;
    for (size_t i = 0; i < one * n; i++)
        body->right = body->right && text[i] == body->letter;
    body->size += (int)(one * n);
    return one * n;
}

static CURLcode get(CURL *c, const char *host, int size, int delay)
{
    char url[128];
    long status = 0;
    struct body body = {.right = true, .letter = (char)('a' + size % 26)};
    snprintf(url, sizeof url, "http://%s:%d/%d/%d", host, port, size, delay);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &body);
    CURLcode r = curl_easy_perform(c);
    clients.requests++;
    if (r != CURLE_OK)
        return r;
    curl_easy_getinfo(c, CURLINFO_RESPONSE_CODE, &status);
    CHECK_EQ(status, 200);
    CHECK_EQ(body.size, size);
    CHECK(body.right);
    return r;
}

static CURL *handle(void)
{
    CURL *c = curl_easy_init();
    CHECK(c != NULL);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    return c;
}

static void client(int id)
{
    CURL *c = handle();
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_EQ(get(c, "127.0.0.1", id * 10 + i, 0), CURLE_OK);
        CHECK_EQ(get(c, "127.0.0.1", i, SLOW_MS), CURLE_OK);
    }
    CHECK_EQ(get(c, "127.0.0.1", LARGE + id, 0), CURLE_OK);
    curl_easy_cleanup(c);
}

static void with_server(int count, client_fn *fn)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
    server_opens();
    run_clients(count, fn, server);
    close(listener);
    check_leaks_allowed(); /* the server's side of connections that it has not seen closed at the end of the run */
}

CASE(fifty_goroutines_on_few_threads)
{
    with_server(CLIENTS, client);
}

static void impatient(int id)
{
    CURL *c = handle();
    curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, 100L);
    CHECK_EQ(get(c, "127.0.0.1", id, 600000), CURLE_OPERATION_TIMEDOUT);
    curl_easy_cleanup(c);
}

CASE(the_librarys_own_limit_holds)
{
    with_server(CLIENTS, impatient);
}

/* libcurl looks names up in a thread of its own, to which libweft_posix is nothing. */
static void by_name(int id)
{
    CURL *c = handle();
    curl_easy_setopt(c, CURLOPT_IPRESOLVE, CURL_IPRESOLVE_V4);
    CHECK_EQ(get(c, "localhost", id + 5, 1), CURLE_OK);
    curl_easy_cleanup(c);
}

CASE(names_are_looked_up)
{
    struct addrinfo *found = NULL;
    if (getaddrinfo("localhost", NULL, &(struct addrinfo){.ai_family = AF_INET}, &found) != 0) {
        skipped("this machine does not know its name localhost");
        return;
    }
    freeaddrinfo(found);
    with_server(1, by_name);
}
