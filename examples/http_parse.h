/* SPDX-License-Identifier: MIT */
/*
 * Requests of HTTP/1.1 and 1.0 (RFC 9112), out of bytes. It reads nothing by itself and keeps nothing but the request.
 *
 *      head    GET /path HTTP/1.1 CRLF         body    as many bytes as Content-Length says, or chunks:
 *              Name: value CRLF                        size CRLF data CRLF
 *              ...                                     0 CRLF
 *              CRLF                                    Name: value CRLF ... CRLF
 *
 * It goes line by line, and a line is looked at once it is complete or too long: how the bytes were cut into reads makes no
 * difference. tests/fuzz/fuzz_http.c tries every cut.
 *
 * If a proxy and a server disagree on where a request ends, what one user sent can pass for the request of another ("request
 * smuggling"). So whatever leaves room for two opinions is refused instead of repaired: a line end without CR, a lone CR, NUL
 * and other control characters, a folded line, a space before the colon, a Content-Length that is there twice or is not
 * only digits, one beside a Transfer-Encoding, an encoding other than "chunked", a chunk that does not end where it said.
 */
#ifndef HTTP_PARSE_H
#define HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    HTTP_HEAD_MAX = 8192,     /* bytes of a head; a buffer of this size is enough for http_head and http_body */
    HTTP_FIELDS_MAX = 100,    /* fields of a head, and of a body's trailer */
    HTTP_BODY_MAX = 1 << 20,  /* bytes of a body, with what its chunks' sizes take */
    HTTP_CHUNK_LINE_MAX = 256 /* bytes of the line with a chunk's size */
};

enum { HTTP_MORE = 0, HTTP_DONE = 1 }; /* any other result is the status to refuse the request with */

enum http_method { HTTP_OTHER, HTTP_GET, HTTP_HEAD };

enum http_framing { HTTP_SIZED, HTTP_CHUNK_SIZE, HTTP_CHUNK_DATA, HTTP_CHUNK_END, HTTP_TRAILER, HTTP_COMPLETE };

/* Zero-initialised before the first call. */
struct http_request {
    enum http_method method;
    int minor;                         /* of HTTP/1.minor */
    bool close;                        /* the connection ends after the answer */
    bool expects;                      /* the client waits for "100 Continue" before it sends the body */
    size_t target_offset, target_size; /* where in the head the target is */
    size_t size;                       /* of the head: of its lines so far, before HTTP_DONE */

    /* of http_parse.c */
    enum http_framing framing; /* what comes next in the body */
    uint64_t left;             /* bytes of the body, or of its chunk, to come */
    uint64_t body_size;        /* so far, with the lines of chunk sizes */
    size_t trailer_size;
    int fields, hosts, lengths, encodings;
    bool begun, keep_alive;
};

/* bytes: all that has come since the request's first byte. After HTTP_MORE it is called again with more of them. */
int http_head(struct http_request *r, const char *bytes, size_t n);

/* bytes: what comes after the head; *used of them are done with when it returns, whatever it returns. */
int http_body(struct http_request *r, const char *bytes, size_t n, size_t *used);

#endif
