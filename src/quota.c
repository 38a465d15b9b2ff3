/* SPDX-License-Identifier: MIT */
/*
 * How many processors this process may use: its affinity mask, and the CPU quota of its control group and of every
 * group above it, the least of all, rounded up.
 *
 * cgroup v2: the line "0::/path" of /proc/self/cgroup, and cpu.max ("max 100000" or "quota period") in each folder from
 * there up to the mount point. cgroup v1: the line whose controllers include "cpu", and cpu.cfs_quota_us (-1: none)
 * over cpu.cfs_period_us. Mount points come from /proc/self/mountinfo. What cannot be read does not limit.
 */
#include "weft_internal.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH = 4096 };

struct hierarchy {
    char mount[PATH]; /* where it is mounted */
    char root[PATH];  /* the group that the mount point shows */
    char group[PATH]; /* the group that we are in */
    bool v2;
};

static FILE *open_in(const char *root, const char *path)
{
    char full[PATH * 3];
    if (snprintf(full, sizeof full, "%s%s", root, path) >= (int)sizeof full)
        return NULL;
    return fopen(full, "re");
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ',') && (at[n] == '\0' || at[n] == ','))
            return true;
    return false;
}

/* "id:controllers:/group" */
static bool find_group(const char *root, struct hierarchy *h)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = open_in(root, "/proc/self/cgroup");
    bool found = false;
    while (f != NULL && !found && getline(&line, &room, f) > 0) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        found = h->v2 ? *controllers == '\0' : has_word(controllers, "cpu");
        if (found)
            snprintf(h->group, sizeof h->group, "%s", group);
    }
    free(line);
    if (f != NULL)
        fclose(f);
    return found;
}

/* mountinfo writes a space as \040. */
static void unescape(char *s)
{
    char *to = s;
    for (; *s != '\0'; to++) {
        unsigned int code;
        if (s[0] == '\\' && sscanf(s + 1, "%3o", &code) == 1) {
            *to = (char)code;
            s += 4;
        } else {
            *to = *s++;
        }
    }
    *to = '\0';
}

/* "36 25 0:31 /root /mount options - type source super,options" */
static bool find_mount(const char *root, struct hierarchy *h)
{
    char *line = NULL, type[64], super[PATH];
    size_t room = 0;
    FILE *f = open_in(root, "/proc/self/mountinfo");
    bool found = false;
    while (f != NULL && !found && getline(&line, &room, f) > 0) {
        char *dash = strstr(line, " - ");
        if (dash == NULL || sscanf(dash, " - %63s %*s %4095s", type, super) != 2)
            continue;
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", h->root, h->mount) != 2)
            continue;
        found = h->v2 ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && has_word(super, "cpu");
    }
    free(line);
    if (f != NULL)
        fclose(f);
    unescape(h->mount);
    unescape(h->root);
    return found;
}

static bool read_two(const char *root, const char *folder, const char *file, long *a, long *b)
{
    char path[PATH * 2], text[128] = "";
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = open_in(root, path);
    if (f == NULL)
        return false;
    bool ok =
        fgets(text, sizeof text, f) != NULL && sscanf(text, b != NULL ? "%ld %ld" : "%ld", a, b) == (b != NULL ? 2 : 1);
    fclose(f);
    return ok;
}

/* Processors that the quota of one group is worth, or 0: no limit. */
static int quota(const char *root, const struct hierarchy *h, const char *folder)
{
    long q = 0, period = 0;
    bool ok = h->v2 ? read_two(root, folder, "cpu.max", &q, &period)
                    : read_two(root, folder, "cpu.cfs_quota_us", &q, NULL) &&
                          read_two(root, folder, "cpu.cfs_period_us", &period, NULL);
    if (!ok || q <= 0 || period <= 0 || q / period >= W_MAX_PROCS)
        return 0;
    return (int)(q / period + (q % period != 0));
}

/* The least over our group and all above it that the mount shows. */
static int least_quota(const char *root, bool v2)
{
    struct hierarchy *h = calloc(1, sizeof *h);
    char *folder = malloc(PATH * 2);
    int least = 0;
    if (h == NULL || folder == NULL)
        goto done;
    h->v2 = v2;
    if (!find_group(root, h) || !find_mount(root, h))
        goto done;
    const char *below = h->group;
    size_t n = strlen(h->root);
    if (n > 1 && strncmp(below, h->root, n) == 0) /* inside a container the mount shows a part of the tree */
        below += n;
    size_t mount = strlen(h->mount);
    snprintf(folder, PATH * 2, "%s%s", h->mount, strcmp(below, "/") == 0 ? "" : below);
    for (;;) {
        int q = quota(root, h, folder);
        if (q > 0 && (least == 0 || q < least))
            least = q;
        char *slash = strrchr(folder, '/');
        if (slash == NULL || (size_t)(slash - folder) < mount)
            break;
        *slash = '\0';
    }
done:
    free(h);
    free(folder);
    return least;
}

/* The mask may be for more processors than a cpu_set_t has room for. */
static int affinity(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL)
            return 1;
        size_t size = CPU_ALLOC_SIZE((size_t)cpus);
        int n = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (n > 0)
            return n;
    }
    return 1;
}

int w_usable_cpus(const char *root)
{
    int n = affinity();
    for (int v2 = 0; v2 <= 1; v2++) {
        int q = least_quota(root, v2);
        if (q > 0 && q < n)
            n = q;
    }
    return n < W_MAX_PROCS ? n : W_MAX_PROCS;
}
