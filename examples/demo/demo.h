/* SPDX-License-Identifier: MIT */
/* What the steps of the tour share: a screen to write on, a clock, how much to do. */
#ifndef DEMO_H
#define DEMO_H

#include <stdbool.h>
#include <stdint.h>
#include <weft.h>

/* ---- screen.c --------------------------------------------------------------------------------------------------- */

void screen_init(void);
void show_text(const char *format, ...) __attribute__((format(printf, 1, 2)));
void show_step(int number, const char *title, const char *what); /* what: one sentence on what it shows */
void show_row(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A line that the next one takes the place of; nothing where the output is no terminal. */
void show_live(const char *who, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool screen_is_terminal(void);

/* ---- main.c ------------------------------------------------------------------------------------------------------- */

extern bool quick; /* do little of everything: for the tests */

double seconds_now(void);
int must(int result, const char *what); /* a negative errno ends the program */
void run_weft(weft_fn *fn, void *arg);

/* Starts threads with small stacks, joins them; how many could be had. */
int run_threads(int count, void *(*fn)(void *), void *arg);

/* ---- the steps ---------------------------------------------------------------------------------------------------- */

void step_million(void);
void step_sieve(void);
void step_hogs(void);
void step_blocking(void);
void step_http(void);
void step_deadlock(void);

#endif
