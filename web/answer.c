/* SPDX-License-Identifier: MIT */
/*
 * What the live picture's server answers.
 *
 *      /, /weft.css, /weft.js ...  the page: files that are a part of the library (page.S). They tell nothing, so anybody gets them
 *      /api/info                   which program this is
 *      /api/stats                  weft_stats_json
 *      /api/goroutines             weft_dump_json, though it waits for nobody who writes one elsewhere
 *      /api/trace?seconds=N        a trace of the next N seconds
 *      /api/profile?seconds=N      a profile of them, as collapsed stacks
 *
 * What there is to tell is written into memory first (a memfd), and sent from there: so its size is known, and neither a lock
 * of the runtime nor a half-made trace waits for a client. Traces and profiles are waited for on a timerfd, not with weft_sleep:
 * a goroutine of the library's own waits for descriptors alone (w_go_service).
 */
#include "dump.h"
#include "sys_io.h"
#include "web.h"
#include <stdio.h>
#include <string.h>
#include <sys/timerfd.h>

enum { PIECE = 16 << 10 };
static const int64_t PATIENCE = 10 * WEFT_SEC; /* with a client that does not take what it asked for */
static const int64_t LOOK = 200 * WEFT_MSEC;   /* so often a client that waits for a trace is looked at */
static const long LONGEST = 60000;             /* ms of a trace or a profile */

#define PAGE(symbol) extern const char symbol[], symbol##_end[]
PAGE(w_page_html);
PAGE(w_page_css);
PAGE(w_page_js);
PAGE(w_page_common);
PAGE(w_page_scene);
PAGE(w_page_plots);
PAGE(w_page_groups);
PAGE(w_page_record);

/* ---- sending ----------------------------------------------------------------------------------------------------- */

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {{200, "OK"},
                   {400, "Bad Request"},
                   {401, "Unauthorized\r\nWWW-Authenticate: Bearer"},
                   {403, "Forbidden"},
                   {404, "Not Found"},
                   {405, "Method Not Allowed\r\nAllow: GET, HEAD"},
                   {409, "Conflict"},
                   {413, "Content Too Large"},
                   {431, "Request Header Fields Too Large"},
                   {503, "Service Unavailable"},
                   {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Error";
}

static bool send_all(struct w_guest *guest, const char *bytes, size_t size)
{
    while (size > 0) {
        size_t n = size < PIECE ? size : PIECE;
        w_guest_may_take(guest, PATIENCE);
        if (weft_write(guest->fd, bytes, n) != (ssize_t)n)
            return false;
        bytes += n;
        size -= n;
    }
    return true;
}

static bool send_head(struct w_guest *guest, const struct w_http *r, int status, const char *type, size_t size)
{
    char head[1024];
    int n = snprintf(
        head, sizeof head,
        "HTTP/1.1 %d %s\r\nServer: weft\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n"
        "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nWeft-Goroutine: %lu\r\n"
        "Cross-Origin-Resource-Policy: same-origin\r\n"
        "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n%s\r\n",
        status, reason(status), type, size, (unsigned long)weft_id(), r->close ? "Connection: close\r\n" : "");
    return send_all(guest, head, (size_t)n);
}

static bool send_text(struct w_guest *guest, const struct w_http *r, int status, const char *type, const char *text,
                      size_t size)
{
    return send_head(guest, r, status, type, size) && (r->head || send_all(guest, text, size));
}

/* A line that says what is wrong. */
static bool complain(struct w_guest *guest, const struct w_http *r, int status, const char *what)
{
    char line[256];
    int n = snprintf(line, sizeof line, "%d: %s\n", status, what);
    return send_text(guest, r, status, "text/plain; charset=utf-8", line, (size_t)n);
}

static const char *explanation(int status)
{
    switch (status) {
    case 405:
        return "only GET and HEAD are understood";
    case 413:
        return "a request has no body here";
    case 431:
        return "the head of the request is above 8192 bytes";
    case 503:
        return "too many connections";
    case 505:
        return "only HTTP/1.1 and 1.0 are understood";
    default:
        return "this is no request of HTTP/1.1";
    }
}

/* After a refusal nobody knows where the next request begins, so it is the last answer. */
void w_refuse(struct w_guest *guest, const struct w_http *r, int status)
{
    struct w_http last = {.head = r->head, .close = true};
    complain(guest, &last, status, explanation(status));
}

/* ---- memory that calls write into -------------------------------------------------------------------------------- */

/* The guest has it, so that it is closed too if the run ends meanwhile. */
static int new_memory(struct w_guest *guest)
{
    guest->memory = (int)W_RESULT(syscall(SYS_memfd_create, "weft-answer", 1 /* MFD_CLOEXEC */));
    return guest->memory;
}

static void close_of(int *fd)
{
    if (*fd >= 0)
        w_sys_close(*fd);
    *fd = -1;
}

static bool send_memory(struct w_guest *guest, const struct w_http *r, const char *type)
{
    struct stat st;
    char piece[PIECE];
    if (w_sys_stat(guest->memory, &st) != 0)
        return false;
    bool good = send_head(guest, r, 200, type, (size_t)st.st_size);
    for (off_t at = 0; good && !r->head && at < st.st_size;) {
        struct iovec iov = {piece, sizeof piece};
        long n = w_sys_read(guest->memory, &iov, 1, at);
        good = n > 0 && send_all(guest, piece, (size_t)n);
        at += n;
    }
    return good;
}

/* What a call said about itself, or why it could not. */
static bool send_result(struct w_guest *guest, const struct w_http *r, int result, const char *type)
{
    char what[64];
    bool good;
    if (result == 0) {
        good = send_memory(guest, r, type);
    } else {
        snprintf(what, sizeof what, "this cannot be told now (error %d)", -result);
        good = complain(guest, r, result == -EBUSY ? 409 : 503, result == -EBUSY ? "one is being made already" : what);
    }
    close_of(&guest->memory);
    return good;
}

/* ---- what is asked for ------------------------------------------------------------------------------------------- */

static bool answer_info(struct w_guest *guest, const struct w_http *r)
{
    char name[128], text[256];
    size_t n = 0;
    for (const char *c = program_invocation_short_name; *c != '\0' && n < sizeof name - 2; c++) {
        if (*c == '"' || *c == '\\')
            name[n++] = '\\';
        name[n++] = (unsigned char)*c < ' ' ? '?' : *c;
    }
    name[n] = '\0';
    int size = snprintf(text, sizeof text, "{\"program\":\"%s\",\"pid\":%d}\n", name, (int)getpid());
    return send_text(guest, r, 200, "application/json", text, (size_t)size);
}

static bool answer_json(struct w_guest *guest, const struct w_http *r, int (*tell)(int fd))
{
    int fd = new_memory(guest);
    return send_result(guest, r, fd < 0 ? fd : tell(fd), "application/json");
}

static bool answer_stats(struct w_guest *guest, const struct w_http *r)
{
    return answer_json(guest, r, weft_stats_json);
}

static bool answer_goroutines(struct w_guest *guest, const struct w_http *r)
{
    return answer_json(guest, r, w_dump_json_apart);
}

/* ---- what takes a while ------------------------------------------------------------------------------------------ */

static bool has_left(int fd)
{
    return w_sys_ready(fd, POLLRDHUP) > 0;
}

/* Until the time is over, or the client has gone away. */
static void wait_for(struct w_guest *guest, int64_t ns)
{
    int64_t end = w_now() + ns;
    guest->timer = (int)W_RESULT(syscall(SYS_timerfd_create, CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    while (guest->timer >= 0 && w_now() < end && !has_left(guest->fd)) {
        int64_t left = end - w_now(), step = left < LOOK ? left + 1 : LOOK;
        struct itimerspec in = {.it_value = {step / WEFT_SEC, step % WEFT_SEC}};
        uint64_t times;
        if (W_RESULT(syscall(SYS_timerfd_settime, guest->timer, 0, &in, NULL)) != 0 ||
            weft_read(guest->timer, &times, sizeof times) < 0)
            break;
    }
    close_of(&guest->timer);
}

static bool answer_after(struct w_guest *guest, const struct w_http *r, const char *type,
                         int (*start)(const char *path), int (*stop)(void))
{
    char path[64];
    long ms = w_http_ms(r, "seconds", 1000, LONGEST);
    if (ms <= 0)
        return complain(guest, r, 400, "seconds must be a number above 0, at most 60");
    if (r->head)
        return send_head(guest, r, 200, type, 0);
    int fd = new_memory(guest), result = fd;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fd >= 0 && (result = start(path)) == 0) {
        wait_for(guest, ms * WEFT_MSEC);
        result = stop();
    }
    return send_result(guest, r, result, type);
}

static bool answer_trace(struct w_guest *guest, const struct w_http *r)
{
    return answer_after(guest, r, "application/json", weft_trace_start, weft_trace_stop);
}

static int start_profile(const char *path)
{
    return weft_profile_start(path, 0);
}

static bool answer_profile(struct w_guest *guest, const struct w_http *r)
{
    return answer_after(guest, r, "text/plain; charset=utf-8", start_profile, weft_profile_stop);
}

/* ---- who may ask for what ---------------------------------------------------------------------------------------- */

struct route {
    const char *path;
    bool (*answer)(struct w_guest *, const struct w_http *); /* NULL: a file of the page */
    const char *type, *at, *end;                             /* of a file */
};

static const struct route *find(struct w_piece path)
{
    static const char html[] = "text/html; charset=utf-8", css[] = "text/css; charset=utf-8",
                      js[] = "text/javascript; charset=utf-8";
    static const struct route routes[] = {{"/", NULL, html, w_page_html, w_page_html_end},
                                          {"/weft.css", NULL, css, w_page_css, w_page_css_end},
                                          {"/weft.js", NULL, js, w_page_js, w_page_js_end},
                                          {"/common.js", NULL, js, w_page_common, w_page_common_end},
                                          {"/scene.js", NULL, js, w_page_scene, w_page_scene_end},
                                          {"/plots.js", NULL, js, w_page_plots, w_page_plots_end},
                                          {"/groups.js", NULL, js, w_page_groups, w_page_groups_end},
                                          {"/record.js", NULL, js, w_page_record, w_page_record_end},
                                          {"/api/info", answer_info, NULL, NULL, NULL},
                                          {"/api/stats", answer_stats, NULL, NULL, NULL},
                                          {"/api/goroutines", answer_goroutines, NULL, NULL, NULL},
                                          {"/api/trace", answer_trace, NULL, NULL, NULL},
                                          {"/api/profile", answer_profile, NULL, NULL, NULL}};
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
        if (w_piece_is(path, routes[i].path))
            return &routes[i];
    return NULL;
}

static bool has_token(const struct w_http *r, const char *token)
{
    return w_token_is(r->bearer, token) || w_token_is(w_http_value(r, "token"), token);
}

/* A page of another site may make a browser ask; it must not cause anything here. */
static bool comes_from_elsewhere(const struct w_http *r)
{
    return r->cross_site || (r->origin.at != NULL && !w_origin_is(r->origin, r->whole_host));
}

bool w_answer(struct w_guest *guest, const struct w_http *r)
{
    const char *token = guest->token;
    const struct route *route = find(r->path);
    bool known = token[0] != '\0' && has_token(r, token), good;
    if (route == NULL)
        good = complain(guest, r, 404, "there is no such thing here");
    else if (!known && token[0] == '\0' && !w_host_is_local(r->host))
        good = complain(guest, r, 403, "the Host of the request is no name of this machine: set WEFT_HTTP_TOKEN");
    else if (route->answer == NULL)
        good = send_text(guest, r, 200, route->type, route->at, (size_t)(route->end - route->at));
    else if (!known && token[0] != '\0')
        good = complain(guest, r, 401, "a token is needed: open the address that was printed, with its ?token=");
    else if (comes_from_elsewhere(r))
        good = complain(guest, r, 403, "a page of another site asks");
    else
        good = route->answer(guest, r);
    return good && !r->close;
}
