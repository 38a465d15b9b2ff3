/* SPDX-License-Identifier: MIT */
/* Addresses as text, the way weft_listen and weft_dial take them. */
#ifndef W_ADDRESS_H
#define W_ADDRESS_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum w_host {
    W_HOST_NONE, /* ":80": whoever asks knows which */
    W_HOST_IPV4, /* sa.in is all there is to know, but for a service */
    W_HOST_IPV6, /* likewise sa.in6, but for a service and a zone */
    W_HOST_NAME, /* it has to be looked up */
    W_HOST_UNIX, /* sa.un, with `length` */
};

enum { W_NAME_MAX = 253, W_SERVICE_MAX = 31 };

struct w_address {
    enum w_host host;
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_in6 in6;
        struct sockaddr_un un;
    } sa;                            /* of a literal, with the port */
    socklen_t length;                /* of sa; 0: it is not a literal */
    uint16_t port;                   /* 0 with a service */
    char name[W_NAME_MAX + 2];       /* of W_HOST_NAME; it may end in one more dot */
    char zone[IF_NAMESIZE];          /* of IPv6, as it was written: a number or an interface; "" without one */
    char service[W_SERVICE_MAX + 1]; /* in the place of a number; "" without one */
};

/* Looks at nothing but the text. -EINVAL: it is no address; -ENAMETOOLONG: the path of a socket does not fit. */
int w_address_parse(const char *text, struct w_address *a);

#endif
