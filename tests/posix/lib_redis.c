/* SPDX-License-Identifier: MIT */
/* hiredis, which uses blocking sockets, against a Redis server. */
#include "clients.h"
#include <hiredis/hiredis.h>

enum { CLIENTS = 200, ROUNDS = 20, TURNS = 10 };

static redisContext *connected(void)
{
    redisContext *c = redisConnectUnix(server_at("TEST_REDIS"));
    CHECK(c != NULL && c->err == 0);
    return c;
}

/* The reply as text; "" if it is none. */
static void ask(redisContext *c, char *text, size_t size, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    redisReply *r = redisvCommand(c, format, ap);
    va_end(ap);
    CHECK(r != NULL);
    if (r != NULL && r->type == REDIS_REPLY_ARRAY && r->elements == 2) /* BLPOP: the list's name, the value */
        snprintf(text, size, "%s", r->element[1]->str);
    else
        snprintf(text, size, "%s", r != NULL && r->str != NULL ? r->str : "");
    freeReplyObject(r);
    clients.requests++;
}

static void set_and_get(redisContext *c, int id)
{
    char text[64], expected[64];
    for (int i = 0; i < ROUNDS; i++) {
        snprintf(expected, sizeof expected, "value %d of %d", i, id);
        ask(c, text, sizeof text, "SET key-%d %s", id, expected);
        CHECK(strcmp(text, "OK") == 0);
        ask(c, text, sizeof text, "GET key-%d", id);
        CHECK(strcmp(text, expected) == 0);
    }
}

/* The server answers when somebody else sends, and else late. */
static void take_turns(redisContext *c, int id)
{
    char text[64];
    int game = id / 2, side = id % 2;
    for (int i = 0; i < TURNS; i++) {
        if (i % 2 == side) {
            ask(c, text, sizeof text, "RPUSH to-%d-%d turn-%d", game, 1 - side, i);
            continue;
        }
        ask(c, text, sizeof text, "BLPOP to-%d-%d 0", game, side);
        CHECK_EQ(atoi(text + strlen("turn-")), i);
    }
    ask(c, text, sizeof text, "BLPOP nothing-%d 0.1", id);
    CHECK(strcmp(text, "") == 0);
}

static void client(int id)
{
    redisContext *c = connected();
    set_and_get(c, id);
    take_turns(c, id);
    redisFree(c);
}

CASE(two_hundred_goroutines_on_few_threads)
{
    run_clients(CLIENTS, client, NULL);
}

/* A limit that hiredis sets with SO_RCVTIMEO. */
static void impatient(int id)
{
    redisContext *c = connected();
    CHECK_EQ(redisSetTimeout(c, (struct timeval){.tv_usec = 100000}), REDIS_OK);
    redisReply *r = redisCommand(c, "BLPOP never-%d 0", id);
    clients.requests++;
    CHECK(r == NULL);
    CHECK_EQ(c->err, REDIS_ERR_IO);
    CHECK(strstr(c->errstr, "temporarily unavailable") != NULL);
    redisFree(c);
}

CASE(the_librarys_own_limit_holds)
{
    run_clients(CLIENTS, impatient, NULL);
}
