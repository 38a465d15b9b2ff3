/* SPDX-License-Identifier: MIT */
/*
 * weft top: what the goroutines, processors and threads of a running program do, in a terminal.
 *
 *      weft top 1234                   the program with that process number, which was started with WEFT_HTTP=127.0.0.1:0
 *      weft top 127.0.0.1:8080         the one that serves its live picture there; also "http://...?token=..." and "unix:/path"
 *      weft top --once 1234            one look, as plain text
 *      weft top --every 0.5 1234       a look every half second; keys: q quits, p pauses
 *
 * It asks the server of the live picture (web/) and is itself a program of Weft: one goroutine reads the keys, the main one looks. A process
 * has its address in a memfd called "weft-http", which /proc shows to its owner.
 */
#include "weft_json.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <weft.h>

enum { BAR = 24, LINE = 256, ANSWER_MAX = 64 << 20 };

static struct {
    const char *target;
    double every; /* seconds */
    bool once;
    bool screen; /* stdout is a terminal that is ours */
} options = {.every = 1};

static char address[512], token[128];
static struct termios before;

/* ---- complaints -------------------------------------------------------------------------------------------------- */

static void leave_screen(void)
{
    if (!options.screen)
        return;
    options.screen = false;
    printf("\033[?25h\033[?1049l");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

static void give_up(const char *format, ...)
{
    va_list list;
    leave_screen();
    fprintf(stderr, "weft top: ");
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(1);
}

static int usage(void)
{
    fprintf(stderr, "usage: weft top [--once] [--every SECONDS] PID|ADDRESS\n");
    return 2;
}

/* ---- where it is ------------------------------------------------------------------------------------------------- */

/* "http://HOST:PORT/?token=T", or an address as weft_dial takes it. */
static void take_address(const char *text)
{
    const char *query = strstr(text, "?token=");
    if (query != NULL)
        snprintf(token, sizeof token, "%.*s", (int)strcspn(query + 7, "&# \n"), query + 7);
    if (strncmp(text, "http://", 7) == 0)
        snprintf(address, sizeof address, "%.*s", (int)strcspn(text + 7, "/?\n"), text + 7);
    else
        snprintf(address, sizeof address, "%.*s", (int)strcspn(text, "?\n"), text);
}

static bool read_note(const char *path, char *text, size_t size)
{
    char target[64] = "";
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0 || strcmp(target, "/memfd:weft-http (deleted)") != 0)
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    n = fd >= 0 ? pread(fd, text, size - 1, 0) : -1;
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static void take_process(const char *pid)
{
    char folder[64], path[PATH_MAX], note[512];
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    DIR *fds = opendir(folder);
    if (fds == NULL)
        give_up(errno == EACCES ? "process %s belongs to somebody else" : "there is no process %s", pid);
    bool found = false;
    for (struct dirent *e; !found && (e = readdir(fds)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        found = read_note(path, note, sizeof note);
    }
    closedir(fds);
    if (!found)
        give_up("process %s serves no live picture: start it with WEFT_HTTP=127.0.0.1:0 in its environment", pid);
    take_address(note);
}

static void find_target(void)
{
    size_t digits = strspn(options.target, "0123456789");
    if (digits > 0 && options.target[digits] == '\0')
        take_process(options.target);
    else
        take_address(options.target);
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

static char *read_all(int fd)
{
    size_t room = 64 << 10, n = 0;
    char *text = malloc(room);
    for (ssize_t k; text != NULL && n < ANSWER_MAX && (k = weft_read(fd, text + n, room - 1 - n)) > 0;) {
        n += (size_t)k;
        if (n + 1 == room && (text = realloc(text, room *= 2)) == NULL)
            break;
    }
    if (text == NULL)
        give_up("no memory");
    text[n] = '\0';
    return text;
}

/* What comes after the head, to be freed; the line that says what is wrong is the end of us. NULL: nobody answers. */
static char *ask(const char *path)
{
    char request[512];
    int fd = weft_dial(address);
    if (fd < 0)
        return NULL;
    int n = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s%s%s\r\n",
                     path, token[0] != '\0' ? "Authorization: Bearer " : "", token, token[0] != '\0' ? "\r\n" : "");
    weft_write(fd, request, (size_t)n);
    char *text = read_all(fd), *body = strstr(text, "\r\n\r\n");
    weft_close_fd(fd);
    if (body == NULL) {
        free(text);
        return NULL;
    }
    if (strncmp(text, "HTTP/1.1 200", 12) != 0)
        give_up("%s says: %.*s", address, (int)strcspn(body + 4, "\n"), body + 4);
    memmove(text, body + 4, strlen(body + 4) + 1);
    return text;
}

/* ---- a frame, line by line --------------------------------------------------------------------------------------- */

static struct {
    int rows, columns; /* of the screen; 0: without limit */
    int used;
} frame;

static void begin_frame(void)
{
    struct winsize size = {0};
    frame.used = frame.rows = frame.columns = 0;
    if (!options.screen)
        return;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) {
        frame.rows = size.ws_row;
        frame.columns = size.ws_col;
    }
    printf("\033[H");
}

static bool has_room(void)
{
    return frame.rows == 0 || frame.used < frame.rows - 1;
}

/* Cut to the width of the screen. style: an escape sequence, for screens only. */
static void line(const char *style, const char *format, ...)
{
    char text[LINE];
    va_list list;
    if (!has_room())
        return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (frame.columns > 0 && strlen(text) > (size_t)frame.columns)
        text[frame.columns] = '\0';
    if (options.screen)
        printf("%s%s\033[0m\033[K\n", style, text);
    else
        printf("%s\n", text);
    frame.used++;
}

static void end_frame(void)
{
    if (options.screen)
        printf("\033[J");
    fflush(stdout);
}

static const char *bar(double part, char *text)
{
    int n = part <= 0 ? 0 : part >= 1 ? BAR : (int)(part * BAR + 0.999);
    memset(text, '|', (size_t)n);
    memset(text + n, '.', (size_t)(BAR - n));
    text[BAR] = '\0';
    return text;
}

static const char *compact(double n, char *text)
{
    static const struct {
        double size;
        char unit;
    } units[] = {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (n >= 10 * units[i].size) {
            sprintf(text, "%.0f%c", n / units[i].size, units[i].unit);
            return text;
        }
    sprintf(text, "%.0f", n);
    return text;
}

static const char *duration(double ns, char *text)
{
    double s = ns / 1e9;
    if (s < 1)
        sprintf(text, "%.0f ms", s * 1e3);
    else if (s < 60)
        sprintf(text, "%.1f s", s);
    else if (s < 3600)
        sprintf(text, "%d min %d s", (int)s / 60, (int)s % 60);
    else
        sprintf(text, "%d h %d min", (int)s / 3600, (int)s / 60 % 60);
    return text;
}

/* ---- what it shows ----------------------------------------------------------------------------------------------- */

/* Two looks, a while apart: what happened in between. */
struct look {
    const char *now, *then; /* objects of the same kind, then: NULL if there was none before */
    double seconds;
};

static double rate(const struct look *l, const char *name)
{
    return l->then != NULL ? (json_number(l->now, name) - json_number(l->then, name)) / l->seconds : 0;
}

static const char *find_by_id(const char *array, double id)
{
    const char *at = json_first(array);
    while (at != NULL && json_number(at, "id") != id)
        at = json_next(at);
    return at;
}

static double cpu_of(const char *stats)
{
    double sum = 0;
    for (const char *m = json_first(json_member(stats, "threads")); m != NULL; m = json_next(m))
        sum += json_number(m, "cpu_ns");
    return sum;
}

static void show_totals(const struct look *l, double cpu)
{
    const char *t = l->now;
    char a[32], b[32], c[32], d[32];
    double ready = json_number(t, "queue_local") + json_number(t, "queue_high") + json_number(t, "queue_ran") +
                   json_number(t, "queue_fresh") + json_number(t, "queue_heavy") + json_number(t, "queue_low");
    line("", "goroutines  %s alive, %s ready, %s started a second", compact(json_number(t, "alive"), a),
         compact(ready, b), compact(rate(l, "spawned"), c));
    line("", "a second    %s switches, %s steals, %s preemptions, %s polls", compact(rate(l, "switches"), a),
         compact(rate(l, "steals_done"), b), compact(rate(l, "preempts_at_call") + rate(l, "preempts_by_signal"), c),
         compact(rate(l, "polls"), d));
    line("", "threads     %.0f: %.0f running, %.0f blocked, %.0f idle, %.0f spinning; processor time %.0f%%",
         json_number(t, "threads"), json_number(t, "threads_running"), json_number(t, "threads_blocked"),
         json_number(t, "threads_idle"), json_number(t, "threads_spinning"), cpu * 100);
    line("", "waiting     %s timers, %s descriptors", compact(json_number(t, "timers"), a),
         compact(json_number(t, "io_waits"), b));
    line("", "stacks      %s, up to %.1f MiB, %.1f MiB free", compact(json_number(t, "stacks"), a),
         json_number(t, "stack_used") / (1 << 20), json_number(t, "stack_cached") / (1 << 20));
    line("", "global      high %s, ran before %s, never ran %s, heavy %.0f, low %.0f",
         compact(json_number(t, "queue_high"), a), compact(json_number(t, "queue_ran"), b),
         compact(json_number(t, "queue_fresh"), c), json_number(t, "queue_heavy"), json_number(t, "queue_low"));
}

static double queue_of(const char *p)
{
    return json_number(p, "queue_slot") + json_number(p, "queue_ring") + json_number(p, "queue_fresh");
}

static void show_proc(const struct look *l, double longest)
{
    const char *p = l->now;
    char state[32], text[BAR + 1], thread[32] = "-", goroutine[32] = "-", queue[32], switches[32];
    if (json_number(p, "thread") >= 0)
        sprintf(thread, "M%.0f", json_number(p, "thread"));
    if (json_number(p, "goroutine") > 0)
        sprintf(goroutine, "G%.0f", json_number(p, "goroutine"));
    json_text(p, "state", state, sizeof state);
    line(strcmp(state, "running") == 0 ? "\033[32m" : "", "P%-4.0f %-8s %-5s %-12s [%s] %6s ready %8s/s",
         json_number(p, "id"), state, thread, goroutine, bar(queue_of(p) / longest, text), compact(queue_of(p), queue),
         compact(rate(l, "switches"), switches));
}

static void show_procs(const char *now, const char *then, double seconds)
{
    double longest = BAR;
    for (const char *p = json_first(now); p != NULL; p = json_next(p))
        longest = queue_of(p) > longest ? queue_of(p) : longest;
    for (const char *p = json_first(now); p != NULL; p = json_next(p))
        show_proc(&(struct look){p, find_by_id(then, json_number(p, "id")), seconds}, longest);
}

/* The first frame of the program's own: those of the library tell less. */
static const char *front_frame(const char *group)
{
    const char *first = json_first(json_member(group, "frames"));
    char symbol[LINE];
    for (const char *f = first; f != NULL; f = json_next(f)) {
        json_text(f, "symbol", symbol, sizeof symbol);
        if (symbol[0] != '\0' && strncmp(symbol, "w_", 2) != 0 && strncmp(symbol, "weft_", 5) != 0)
            return f;
    }
    return first;
}

static void show_group(const char *group)
{
    char state[32], reason[48], name[48], symbol[96], file[160], count[32];
    const char *f = front_frame(group);
    json_text(group, "state", state, sizeof state);
    json_text(group, "reason", reason, sizeof reason);
    if (json_text(group, "name", name, sizeof name)[0] == '\0')
        json_text(group, "entry", name, sizeof name);
    json_text(f, "symbol", symbol, sizeof symbol);
    json_text(f, "file", file, sizeof file);
    const char *base = strrchr(file, '/');
    if (file[0] != '\0')
        snprintf(file + strlen(file), 16, ":%.0f", json_number(f, "line"));
    line("", "%8s %-19s %-21s %-18s %s %s", compact(json_number(group, "count"), count), state, reason, name, symbol,
         base != NULL ? base + 1 : file);
}

/* The largest that are left, as long as there is room. */
static void show_groups(const char *groups)
{
    enum { MOST = 512, PLAIN = 20 };
    const char *list[MOST];
    int n = 0;
    for (const char *g = json_first(groups); g != NULL && n < MOST; g = json_next(g))
        list[n++] = g;
    line("\033[7m", "%8s %-19s %-21s %-18s %s", "count", "state", "waits for", "goroutine", "at");
    for (int shown = 0; shown < n && has_room() && (frame.rows > 0 || shown < PLAIN); shown++) {
        int best = shown;
        for (int i = shown + 1; i < n; i++)
            if (json_number(list[i], "count") > json_number(list[best], "count"))
                best = i;
        const char *g = list[best];
        list[best] = list[shown];
        list[shown] = g;
        show_group(g);
    }
}

/* ---- looking, again and again ------------------------------------------------------------------------------------ */

struct picture {
    char *info, *stats, *groups; /* texts, or NULL */
};

static bool take(struct picture *p)
{
    *p = (struct picture){ask("/api/info"), ask("/api/stats"), NULL};
    if (p->info != NULL && p->stats != NULL)
        p->groups = ask("/api/goroutines");
    return p->groups != NULL;
}

static void drop(struct picture *p)
{
    free(p->info);
    free(p->stats);
    free(p->groups);
    *p = (struct picture){0};
}

/* When the run began tells one program from the next at the same address. (A microsecond, for clocks beyond 2 ** 53.) */
static double began(const struct picture *p)
{
    return json_number(p->stats, "time_ns") - json_number(json_member(p->stats, "totals"), "uptime_ns");
}

static bool follows(const struct picture *now, const struct picture *then)
{
    return then->stats != NULL && json_number(then->stats, "time_ns") < json_number(now->stats, "time_ns") &&
           fabs(began(now) - began(then)) < 1000;
}

static void show(const struct picture *now, const struct picture *then, const char *note)
{
    char program[64], up[32];
    bool known = follows(now, then);
    const char *before_stats = known ? then->stats : NULL;
    double seconds = known ? (json_number(now->stats, "time_ns") - json_number(then->stats, "time_ns")) / 1e9 : 1;
    const char *totals = json_member(now->stats, "totals");
    begin_frame();
    line("\033[1m", "%s  process %.0f  up %s  at %s%s", json_text(now->info, "program", program, sizeof program),
         json_number(now->info, "pid"), duration(json_number(totals, "uptime_ns"), up), address, note);
    double cpu = known ? (cpu_of(now->stats) - cpu_of(then->stats)) / 1e9 / seconds : 0;
    show_totals(&(struct look){totals, json_member(before_stats, "totals"), seconds}, cpu > 0 ? cpu : 0);
    line("", "%s", "");
    show_procs(json_member(now->stats, "procs"), json_member(before_stats, "procs"), seconds);
    line("", "%s", "");
    show_groups(now->groups);
    end_frame();
}

static void show_once(void)
{
    struct picture then, now;
    if (!take(&then))
        give_up("nobody answers at %s", address);
    weft_sleep((int64_t)(options.every < 0.25 ? options.every * WEFT_SEC : 0.25 * WEFT_SEC));
    if (!take(&now))
        give_up("nobody answers at %s any more", address);
    show(&now, &then, "");
    drop(&now);
    drop(&then);
}

static void read_keys(void *keys)
{
    char key;
    while (weft_read(STDIN_FILENO, &key, 1) == 1)
        weft_send(keys, &key);
}

static void enter_screen(void)
{
    struct termios raw;
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || tcgetattr(STDIN_FILENO, &before) != 0)
        return;
    raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG); /* ^C comes as a key: the screen is left as it was found */
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    options.screen = true;
    printf("\033[?1049h\033[?25l");
}

/* One look more; the last picture stays while nobody answers. */
static void look_again(struct picture *now, struct picture *then)
{
    struct picture next;
    if (take(&next)) {
        drop(then);
        *then = *now;
        *now = next;
        show(now, then, "");
        return;
    }
    drop(&next);
    if (now->stats == NULL)
        give_up("nobody answers at %s", address);
    if (!options.screen)
        give_up("nobody answers at %s any more", address);
    show(now, then, "  (gone, trying again)");
}

/* false: it is time to go. */
static bool obey(char key, bool *paused, const struct picture *now, const struct picture *then)
{
    if (key == 'q' || key == 3 || key == 4)
        return false;
    if (key == 'p' || key == ' ') {
        *paused = !*paused;
        show(now, then, *paused ? "  (paused)" : "");
    }
    return true;
}

static void show_always(void)
{
    struct picture now = {0}, then = {0};
    weft_chan *keys = weft_chan_new(1, 0);
    weft_ticker *ticker = weft_ticker_new((int64_t)(options.every * WEFT_SEC));
    bool paused = false, stays = keys != NULL && ticker != NULL;
    char key = 0;
    enter_screen();
    if (options.screen)
        weft_go(read_keys, keys);
    look_again(&now, &then);
    while (stays) {
        weft_case cases[] = {WEFT_RECV(keys, &key), WEFT_RECV(ticker != NULL ? weft_ticker_chan(ticker) : NULL, NULL)};
        if (weft_select(cases, 2) == 0)
            stays = obey(key, &paused, &now, &then);
        else if (!paused)
            look_again(&now, &then);
    }
    leave_screen();
    drop(&now);
    drop(&then);
}

static void top(void *arg)
{
    (void)arg;
    find_target();
    if (options.once)
        show_once();
    else
        show_always();
}

static bool read_options(int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        char *end = "";
        if (strcmp(argv[i], "--once") == 0)
            options.once = true;
        else if (strcmp(argv[i], "--every") == 0 && i + 1 < argc)
            options.every = strtod(argv[++i], &end);
        else if (argv[i][0] == '-' || options.target != NULL)
            return false;
        else
            options.target = argv[i];
        if (*end != '\0' || !(options.every >= 0.05 && options.every <= 3600))
            return false;
    }
    return options.target != NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "top") != 0 || !read_options(argc, argv))
        return usage();
    unsetenv("WEFT_HTTP"); /* that is for the program which is looked at */
    return weft_run(top, NULL) == 0 ? 0 : 1;
}
