/* SPDX-License-Identifier: MIT */
/* The web server with a thread for each connection and each client. */
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include "demo.h"
#include "http.h"

static void rest_thread(int ms)
{
    usleep((useconds_t)ms * 1000);
}

static const struct side threads = {"pthreads", read, write, rest_thread};

static void *serve_thread(void *fd)
{
    http_serve(&threads, (int)(intptr_t)fd);
    close((int)(intptr_t)fd);
    return NULL;
}

static void *accept_thread(void *listener)
{
    pthread_t thread;
    for (int i = 0, fd; i < CLIENTS && (fd = accept(*(int *)listener, NULL, NULL)) >= 0; i++) {
        must(-pthread_create(&thread, NULL, serve_thread, (void *)(intptr_t)fd), "pthread_create");
        pthread_detach(thread);
    }
    return NULL;
}

static void *ask_thread(void *arg)
{
    struct sockaddr_in in = *(struct sockaddr_in *)arg;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&in, sizeof in) == 0)
        http_ask(&threads, fd);
    if (fd >= 0)
        close(fd);
    return NULL;
}

static void *watch_thread(void *arg)
{
    http_watch(&threads);
    return arg;
}

void http_with_threads(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    pthread_t accepter, watcher;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(bind(listener, (struct sockaddr *)&in, sizeof in) == 0 && listen(listener, CLIENTS) == 0 ? 0 : -errno,
         "listen");
    must(http_address(listener, &in), "getsockname");
    must(-pthread_create(&accepter, NULL, accept_thread, &listener), "pthread_create");
    must(-pthread_create(&watcher, NULL, watch_thread, NULL), "pthread_create");
    run_threads(CLIENTS, ask_thread, &in);
    pthread_join(watcher, NULL);
    shutdown(listener, SHUT_RDWR);
    pthread_join(accepter, NULL);
    close(listener);
}
