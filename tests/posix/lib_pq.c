/* SPDX-License-Identifier: MIT */
/* libpq, which uses non-blocking sockets and poll, against a PostgreSQL server. */
#include "clients.h"
#include <libpq-fe.h>

enum { CLIENTS = 50, ROUNDS = 10 };

static PGconn *connected(void)
{
    PGconn *c = PQconnectdb(server_at("TEST_PQ"));
    CHECK_EQ(PQstatus(c), CONNECTION_OK);
    if (PQstatus(c) != CONNECTION_OK)
        fprintf(stderr, "%s\n", PQerrorMessage(c));
    return c;
}

/* The number in the first field of the first row; -1 if there is none. */
static long ask(PGconn *c, const char *sql, long parameter)
{
    char text[32];
    const char *values[] = {text};
    snprintf(text, sizeof text, "%ld", parameter);
    PGresult *r = PQexecParams(c, sql, 1, NULL, values, NULL, NULL, 0);
    bool rows = PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) > 0;
    if (!rows && PQresultStatus(r) != PGRES_COMMAND_OK)
        check_fail(__FILE__, __LINE__, "%s: %s", sql, PQerrorMessage(c));
    long n = rows ? atol(PQgetvalue(r, 0, 0)) : -1;
    PQclear(r);
    clients.requests++;
    return n;
}

static void client(int id)
{
    PGconn *c = connected();
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK_EQ(ask(c, "SELECT $1::int * 2", id * 1000 + i), 2 * (id * 1000 + i));
        CHECK_EQ(ask(c, "SELECT count(pg_sleep(0.05)) + $1::int", i), i + 1);
        CHECK_EQ(ask(c, "INSERT INTO numbers (client, n) VALUES ($1::int / 1000, $1::int % 1000)", id * 1000 + i), -1);
        sum += i;
    }
    CHECK_EQ(ask(c, "SELECT sum(n) FROM numbers WHERE client = $1::int", id), sum);
    CHECK_EQ(ask(c, "SELECT length(repeat('x', $1::int))", 100000), 100000);
    PQfinish(c);
}

CASE(fifty_goroutines_on_few_threads)
{
    PGconn *c = connected(); /* outside of a run */
    PQclear(PQexec(c, "CREATE TABLE numbers (client int, n int)"));
    run_clients(CLIENTS, client, NULL);
    CHECK_EQ(ask(c, "SELECT count(*) + $1::int FROM numbers", 0), CLIENTS * ROUNDS);
    PQfinish(c);
}
