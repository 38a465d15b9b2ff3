/* SPDX-License-Identifier: MIT */
/*
 * Text for people: wrapped at the width of the terminal, with a little colour and a line that moves. Plain lines where the output
 * is no terminal or NO_COLOR is set.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include "demo.h"

enum { WIDEST = 100, NARROWEST = 24, INDENT = 3, LABEL = 11 };

static bool fancy;

void screen_init(void)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    bool dumb = term == NULL || strcmp(term, "dumb") == 0;
    fancy = isatty(STDOUT_FILENO) && !dumb && (no_color == NULL || no_color[0] == '\0');
}

bool screen_is_terminal(void)
{
    return fancy;
}

/* Asked each time: a window may change. */
static int width(void)
{
    struct winsize size = {0};
    if (!fancy || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return WIDEST;
    return size.ws_col > WIDEST ? WIDEST : size.ws_col < NARROWEST ? NARROWEST : size.ws_col;
}

static const char *style(const char *code)
{
    return fancy ? code : "";
}

/* The words of a text, from a column on; lines after the first are indented by so much. */
static void put_wrapped(const char *text, int column, int indent)
{
    int room = width();
    for (bool first = true; *text != '\0'; first = false) {
        int size = (int)strcspn(text, " ");
        if (!first && column + 1 + size > room) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", size, text);
        column += size;
        text += size + (text[size] == ' ');
    }
    putchar('\n');
    fflush(stdout);
}

static void clear_live(void)
{
    printf("%s", style("\r\033[K"));
}

void show_text(const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put_wrapped(text, 0, 0);
}

void show_step(int number, const char *title, const char *what)
{
    printf("\n%s%d  %s%s\n%*s", style("\033[1m"), number, title, style("\033[0m"), INDENT, "");
    put_wrapped(what, INDENT, INDENT);
}

/* Under the name, on a narrow terminal. */
static int put_name(const char *who)
{
    bool narrow = width() < 60;
    printf("%*s%s%-*s%s", INDENT, "", style(strcmp(who, "weft") == 0 ? "\033[32m" : "\033[33m"), narrow ? 0 : LABEL,
           who, style("\033[0m"));
    if (narrow)
        printf("\n%*s", INDENT + 2, "");
    return narrow ? INDENT + 2 : INDENT + LABEL;
}

void show_row(const char *who, const char *format, ...)
{
    char text[1000];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clear_live();
    int column = put_name(who);
    put_wrapped(text, column, column);
}

void show_live(const char *who, const char *format, ...)
{
    char text[1000];
    va_list args;
    if (!fancy)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    clear_live();
    int room = width() - INDENT - LABEL - 1;
    printf("%*s%-*s%.*s", INDENT, "", LABEL, who, room > 0 ? room : 0, text);
    fflush(stdout);
}
