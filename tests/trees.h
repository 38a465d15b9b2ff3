/* SPDX-License-Identifier: MIT */
/* Made-up trees of files that stand in for / or /sys. */
#ifndef TREES_H
#define TREES_H

#include "check.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static inline void new_tree(void)
{
    strcpy(root, "/tmp/weft-test-XXXXXX");
    CHECK(mkdtemp(root) != NULL);
}

static inline void drop_tree(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file below root, with the folders that it needs. */
static inline void put_file(const char *path, const char *content)
{
    char full[6000];
    snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = fopen(full, "we");
    for (char *slash = full + strlen(root) + 1; f == NULL && (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        mkdir(full, 0755);
    }
    if (f == NULL)
        f = fopen(full, "we");
    CHECK(f != NULL);
    if (f != NULL) {
        fputs(content, f);
        fclose(f);
    }
}

#endif
