/* SPDX-License-Identifier: MIT */
/*
 * Requests to the live picture, out of bytes: the heads of HTTP/1.1 and 1.0 that have no body. It reads nothing by itself.
 *
 * A head is looked at once it is complete, so how it was cut into reads makes no difference. Whatever leaves room for two opinions on
 * what was asked, or by whom, is refused: a line end without CR, control characters, a folded line, a field without a
 * name, a Host that is there twice or not at all, a body. tests/fuzz/fuzz_web.c tries.
 */
#ifndef W_HTTP_H
#define W_HTTP_H

#include <stdbool.h>
#include <stddef.h>

enum { W_HTTP_MAX = 8192 }; /* bytes of a head: a browser sends the cookies of everything that was ever on that host */

enum { W_HTTP_MORE = 0, W_HTTP_DONE = 1 }; /* any other result is the status to refuse the request with */

/* A piece of the head; at NULL: it was not there. */
struct w_piece {
    const char *at;
    size_t size;
};

struct w_http {
    size_t size;               /* of the head */
    bool head;                 /* HEAD: the answer has no body */
    bool close;                /* the connection ends after the answer */
    bool cross_site;           /* a browser says that another site's page asks */
    struct w_piece path;       /* of the target, up to the question mark */
    struct w_piece query;      /* after it */
    struct w_piece host;       /* without the port; the brackets of IPv6 stay */
    struct w_piece origin;     /* what a browser says about the page that asks */
    struct w_piece bearer;     /* the token of "Authorization: Bearer" */
    struct w_piece whole_host; /* with the port */
};

/* bytes: all that has come since the request's first byte. After W_HTTP_MORE it is called again with more of them. */
int w_http_parse(struct w_http *r, const char *bytes, size_t n);

/* The value of a name in the query, as it was sent; at NULL: there is none. */
struct w_piece w_http_value(const struct w_http *r, const char *name);

/* A number of seconds in the query, in milliseconds; otherwise if it is not there; -1: it is no number from 0 to most. */
long w_http_ms(const struct w_http *r, const char *name, long otherwise, long most);

bool w_piece_is(struct w_piece text, const char *word);

/* Is it a name or a number of this very machine? Only such are believed without a token: a name of somebody else's that
 * leads here is a trick ("DNS rebinding"). */
bool w_host_is_local(struct w_piece host);

/* Is it the origin of a page that was served under this host? */
bool w_origin_is(struct w_piece origin, struct w_piece whole_host);

/* The time that it takes tells nothing but the size. */
bool w_token_is(struct w_piece given, const char *token);

#endif
