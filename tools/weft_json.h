/* SPDX-License-Identifier: MIT */
/*
 * Reading JSON where it lies. A value is a pointer to its first character, in a text that ends in NUL; NULL is no value, and gives 0, "" or
 * NULL in turn. A text that is no JSON, or was cut short, gives wrong answers but leads nowhere else.
 */
#ifndef WEFT_JSON_H
#define WEFT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static inline const char *json_skip_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static inline const char *json_skip_string(const char *at)
{
    for (at++; *at != '\0' && *at != '"'; at++)
        if (*at == '\\' && at[1] != '\0')
            at++;
    return *at == '"' ? at + 1 : at;
}

/* What comes after a value. */
static inline const char *json_skip(const char *at)
{
    int depth = 0;
    do {
        at = json_skip_space(at);
        if (*at == '"') {
            at = json_skip_string(at);
        } else if (*at == '{' || *at == '[') {
            depth++;
            at++;
        } else if (*at == '}' || *at == ']') {
            depth--;
            at++;
        } else if (*at == ',' || *at == ':') {
            at++;
        } else {
            size_t n = strcspn(at, ",:{}[]\" \t\r\n");
            at += n;
        }
    } while (depth > 0 && *at != '\0');
    return json_skip_space(at);
}

/* The first of an array, or the one after another; NULL: that was the last. */
static inline const char *json_first(const char *array)
{
    if (array == NULL || *array != '[')
        return NULL;
    const char *at = json_skip_space(array + 1);
    return *at == ']' || *at == '\0' ? NULL : at;
}

static inline const char *json_next(const char *value)
{
    const char *at = json_skip(value);
    return *at == ',' ? json_skip_space(at + 1) : NULL;
}

static inline const char *json_member(const char *object, const char *name)
{
    size_t n = strlen(name);
    if (object == NULL || *object != '{')
        return NULL;
    for (const char *at = json_skip_space(object + 1); *at == '"';) {
        bool found = strncmp(at + 1, name, n) == 0 && at[n + 1] == '"';
        at = json_skip_space(json_skip_string(at));
        if (*at != ':')
            return NULL;
        at = json_skip_space(at + 1);
        if (found)
            return at;
        at = json_skip(at);
        if (*at == ',')
            at = json_skip_space(at + 1);
    }
    return NULL;
}

static inline double json_number(const char *object, const char *name)
{
    const char *at = json_member(object, name);
    return at != NULL ? strtod(at, NULL) : 0;
}

/* Its text, cut to what fits; control characters and escapes become '?', but for \" \\ and \/. Returns text. */
static inline const char *json_text(const char *object, const char *name, char *text, size_t size)
{
    const char *at = json_member(object, name);
    size_t n = 0;
    for (at = at != NULL && *at == '"' ? at + 1 : ""; *at != '\0' && *at != '"' && n + 1 < size; at++) {
        bool escaped = *at == '\\' && at[1] != '\0';
        at += escaped;
        bool plain = escaped ? strchr("\"\\/", *at) != NULL : (unsigned char)*at >= ' ' && *at != '\x7f';
        text[n++] = plain ? *at : '?';
    }
    text[n] = '\0';
    return text;
}

#endif
