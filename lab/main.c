/* SPDX-License-Identifier: MIT */
/*
 * The program around a model: lab_NAME WORKLOAD [NUMBER...] prints lines `NAME VALUE UNIT`; lab_NAME check tests the model, in
 * the way that the test programs do; lab_NAME -l lists the workloads. tools/lab.py runs all of them.
 */
#include "workloads.h"
#include <stdio.h>
#include <string.h>

enum { MAX_ARGS = 4 };

void lab_fail(const char *what, int err)
{
    fprintf(stderr, "lab_%s: %s: %s\n", lab_name, what, strerror(-err));
    exit(1);
}

static int list(void)
{
    for (const struct lab_workload *w = lab_workloads; w->name != NULL; w++)
        printf("%s %s\n", w->name, w->arguments);
    return 0;
}

static int usage(void)
{
    fprintf(stderr, "usage: lab_%s check | -l | WORKLOAD [NUMBER...], where a workload is one of\n", lab_name);
    for (const struct lab_workload *w = lab_workloads; w->name != NULL; w++)
        fprintf(stderr, "  %s %s\n", w->name, w->arguments);
    return 2;
}

static int words_in(const char *text)
{
    int n = 0;
    for (const char *at = text; *at != '\0'; at++)
        n += *at != ' ' && (at == text || at[-1] == ' ');
    return n;
}

int main(int argc, char **argv)
{
    long args[MAX_ARGS] = {0};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc == 2 && strcmp(argv[1], "check") == 0)
        return lab_check();
    if (argc == 2 && strcmp(argv[1], "-l") == 0)
        return list();
    const struct lab_workload *w = lab_workloads;
    while (argc > 1 && w->name != NULL && strcmp(w->name, argv[1]) != 0)
        w++;
    if (argc < 2 || w->name == NULL || argc - 2 != words_in(w->arguments))
        return usage();
    for (int i = 2; i < argc; i++) {
        char *end;
        args[i - 2] = strtol(argv[i], &end, 10);
        if (end == argv[i] || *end != '\0' || args[i - 2] < 0)
            return usage();
    }
    w->fn(args);
    return 0;
}
