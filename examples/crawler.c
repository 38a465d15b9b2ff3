/* SPDX-License-Identifier: MIT */
/*
 * Follows the links of web pages, a goroutine a page, eight pages at a time. `./crawler http://localhost:8000/ ...` follows
 * those that stay on a page's own host, for half a minute at most. Without addresses it crawls a small site of its own:
 *
 *   $ cc crawler.c http_parse.c -lweft -o crawler && ./crawler
 *   404 http://127.0.0.1:.../nowhere
 *   63 pages, 1 broken, 4217 bytes; never more than 8 at a time
 *
 * The scope holds all of it together: a page's goroutine starts those of its links in the same scope, whose close waits for
 * the last of them, and whose deadline cuts each that waits for a permit, a connection or an answer.
 */
#include <stdatomic.h>
#include "crawler_site.h"

enum { AT_A_TIME = 8, PAGES_MAX = 1000, PAGE_SIZE_MAX = 1 << 18 };

struct page {
    char host[128], path[256]; /* "example.org:80", "/" */
};

static weft_scope crawl;
static weft_sem permits;
static atomic_int fine, broken, running;
static atomic_llong bytes;
static atomic_bool crowded;

static struct {
    weft_mutex lock;
    int count;
    struct page pages[PAGES_MAX];
} seen;

/* ---- addresses -------------------------------------------------------------------------------------------------- */

/* False: not an http address, one that is too long, or one that would break the line of a request. */
static bool parse_address(const char *text, struct page *page)
{
    if (strncmp(text, "http://", 7) != 0)
        return false;
    text += 7;
    size_t host = strcspn(text, "/?#"), path = strcspn(text + host, "#");
    for (size_t i = 0; i < host + path; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    bool port = host > 0 && text[host - 1] != ']' && memchr(text, ':', host) != NULL;
    int a = snprintf(page->host, sizeof page->host, "%.*s%s", (int)host, text, port ? "" : ":80");
    int b = snprintf(page->path, sizeof page->path, "%s%.*s", text[host] == '/' ? "" : "/", (int)path, text + host);
    return host > 0 && a < (int)sizeof page->host && b < (int)sizeof page->path;
}

/* The page that a link leads to; false if it is on another host, or relative to the page's folder. */
static bool parse_link(const struct page *from, const char *link, size_t size, struct page *to)
{
    char text[512];
    bool here = size > 0 && link[0] == '/' && (size == 1 || link[1] != '/');
    int n = snprintf(text, sizeof text, "%s%s%.*s", here ? "http://" : "", here ? from->host : "", (int)size, link);
    return n < (int)sizeof text && parse_address(text, to) && strcmp(from->host, to->host) == 0;
}

/* ---- pages ------------------------------------------------------------------------------------------------------ */

static weft_fn visit;

/* Once for each page. */
static void start_visit(const struct page *page)
{
    bool known = false;
    if (weft_lock(&seen.lock) != 0)
        return;
    for (int i = 0; i < seen.count && !known; i++)
        known = strcmp(seen.pages[i].host, page->host) == 0 && strcmp(seen.pages[i].path, page->path) == 0;
    if (!known && seen.count < PAGES_MAX) {
        seen.pages[seen.count] = *page;
        weft_scope_go(&crawl, visit, &seen.pages[seen.count++]);
    }
    weft_unlock(&seen.lock);
}

/* In HTTP/1.0 an answer has no chunks and ends with the connection. Its size, or an error. */
static ssize_t fetch(const struct page *page, char *text)
{
    char request[512];
    size_t size = 0;
    ssize_t n = snprintf(request, sizeof request, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", page->path, page->host);
    int fd = weft_dial(page->host);
    if (fd < 0)
        return fd;
    n = weft_write(fd, request, (size_t)n);
    while (n > 0 && size < PAGE_SIZE_MAX && (n = weft_read(fd, text + size, PAGE_SIZE_MAX - size)) > 0)
        size += (size_t)n;
    text[size] = '\0';
    weft_close_fd(fd);
    return n < 0 ? n : (ssize_t)size;
}

static void visit_links(const struct page *from, const char *text)
{
    struct page to;
    while ((text = strstr(text, "href=\"")) != NULL) {
        text += strlen("href=\"");
        if (parse_link(from, text, strcspn(text, "\""), &to))
            start_visit(&to);
    }
}

static void look_at(const struct page *page, char *text)
{
    int status = 0;
    ssize_t size = fetch(page, text);
    if (size > 0)
        sscanf(text, "HTTP/1.%*1d %3d", &status);
    if (status != 200) {
        atomic_fetch_add(&broken, 1);
        printf("%d http://%s%s\n", size < 0 ? (int)size : status, page->host, page->path);
        return;
    }
    atomic_fetch_add(&fine, 1);
    atomic_fetch_add(&bytes, size);
    visit_links(page, text);
}

static void visit(void *page)
{
    if (weft_sem_acquire(&permits, 1) != 0)
        return;
    if (atomic_fetch_add(&running, 1) >= AT_A_TIME)
        atomic_store(&crowded, true);
    char *text = malloc(PAGE_SIZE_MAX + 1);
    if (text != NULL)
        look_at(page, text);
    free(text);
    atomic_fetch_sub(&running, 1);
    weft_sem_release(&permits, 1);
}

static void crawl_all(char **addresses)
{
    struct page page;
    weft_sem_release(&permits, AT_A_TIME);
    must(weft_scope_open(&crawl, weft_now() + 30 * WEFT_SEC), "weft_scope_open");
    for (; *addresses != NULL; addresses++)
        if (parse_address(*addresses, &page))
            start_visit(&page);
        else
            fprintf(stderr, "not an http address: %s\n", *addresses);
    if (weft_scope_close(&crawl) == -ETIMEDOUT)
        printf("time is up\n");
    printf("%d pages, %d broken, %lld bytes; %s than %d at a time\n", atomic_load(&fine), atomic_load(&broken),
           atomic_load(&bytes), atomic_load(&crowded) ? "sometimes more" : "never more", AT_A_TIME);
}

/* ---- all together ----------------------------------------------------------------------------------------------- */

static void crawl_own(void *address)
{
    char first[128];
    snprintf(first, sizeof first, "http://%s/0", (const char *)address);
    crawl_all((char *[]){first, NULL});
}

static void start(void *arg)
{
    char **words = arg;
    if (words[1] == NULL)
        server_try(serve_page, crawl_own);
    else
        crawl_all(words + 1);
}

int main(int argc, char **argv)
{
    (void)argc;
    return weft_run(start, argv) == 0 ? 0 : 1;
}
