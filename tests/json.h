/* SPDX-License-Identifier: MIT */
/*
 * A strict reader of JSON (RFC 8259) for tests: json_is_valid says whether a text is one value and nothing else, json_at finds a value
 * in it by a path such as "procs.0.id". Each reader returns the place after what it read, or NULL if it is not there.
 */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { JSON_DEPTH = 64 };

static inline const char *json_space(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

static inline const char *json_digits(const char *at)
{
    size_t n = strspn(at, "0123456789");
    return n > 0 ? at + n : NULL;
}

static inline const char *json_number_end(const char *at)
{
    at += *at == '-';
    at = *at == '0' ? at + 1 : json_digits(at);
    if (at != NULL && *at == '.')
        at = json_digits(at + 1);
    if (at != NULL && (*at == 'e' || *at == 'E')) {
        at++;
        at = json_digits(at + (*at == '+' || *at == '-'));
    }
    return at;
}

static inline const char *json_string_end(const char *at)
{
    if (*at++ != '"')
        return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < ' ')
            return NULL; /* the end of the text too */
        if (*at != '\\')
            continue;
        at++;
        if (*at == 'u' && strspn(at + 1, "0123456789abcdefABCDEF") >= 4)
            at += 4;
        else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL)
            return NULL;
    }
    return at + 1;
}

static inline const char *json_value_end(const char *at, int depth);

/* An object, if it has keys, or an array, up to its closing bracket. */
static inline const char *json_items_end(const char *at, bool keys, int depth)
{
    char close = keys ? '}' : ']';
    at = json_space(at + 1);
    if (*at == close)
        return at + 1;
    for (;;) {
        if (keys) {
            at = json_string_end(at);
            at = at != NULL ? json_space(at) : NULL;
            if (at == NULL || *at++ != ':')
                return NULL;
        }
        at = json_value_end(at, depth);
        if (at == NULL || (*at != ',' && *at != close))
            return NULL;
        if (*at++ == close)
            return at;
        at = json_space(at);
    }
}

/* With the spaces before and after it. */
static inline const char *json_value_end(const char *at, int depth)
{
    static const char *const WORDS[] = {"true", "false", "null"};
    const char *end = NULL;
    at = json_space(at);
    if (depth == JSON_DEPTH)
        return NULL;
    if (*at == '{' || *at == '[')
        end = json_items_end(at, *at == '{', depth + 1);
    else if (*at == '"')
        end = json_string_end(at);
    else if (*at == '-' || (*at >= '0' && *at <= '9'))
        end = json_number_end(at);
    for (int i = 0; i < 3 && end == NULL; i++)
        if (strncmp(at, WORDS[i], strlen(WORDS[i])) == 0)
            end = at + strlen(WORDS[i]);
    return end != NULL ? json_space(end) : NULL;
}

static inline bool json_is_valid(const char *text)
{
    const char *end = json_value_end(text, 0);
    return end != NULL && *end == '\0';
}

/* The value of a key, or the n-th of an array, in the valid value at `at`. */
static inline const char *json_member(const char *at, const char *key, size_t length)
{
    bool keys = *at == '{';
    if (!keys && *at != '[')
        return NULL;
    at = json_space(at + 1);
    for (long i = 0; *at != '}' && *at != ']'; i++, at = json_space(at + (*at == ','))) {
        bool same = keys ? strncmp(at + 1, key, length) == 0 && at[1 + length] == '"' : i == strtol(key, NULL, 10);
        if (keys)
            at = json_space(json_space(json_string_end(at)) + 1);
        if (same)
            return at;
        at = json_value_end(at, 0);
    }
    return NULL;
}

/* Where the value is, or NULL. The text is valid. */
static inline const char *json_at(const char *text, const char *path)
{
    text = json_space(text);
    while (text != NULL && *path != '\0') {
        size_t n = strcspn(path, ".");
        text = json_member(text, path, n);
        path += n + (path[n] == '.');
    }
    return text;
}

/* -1: there is none. */
static inline long long json_integer(const char *text, const char *path)
{
    const char *at = json_at(text, path);
    return at != NULL ? strtoll(at, NULL, 10) : -1;
}

static inline bool json_string_is(const char *text, const char *path, const char *value)
{
    const char *at = json_at(text, path);
    size_t n = strlen(value);
    return at != NULL && *at == '"' && strncmp(at + 1, value, n) == 0 && at[1 + n] == '"';
}

/* How many items the array or the object has; -1: it is none. */
static inline int json_length(const char *text, const char *path)
{
    const char *at = json_at(text, path);
    if (at == NULL || (*at != '[' && *at != '{'))
        return -1;
    bool keys = *at == '{';
    int n = 0;
    for (at = json_space(at + 1); *at != ']' && *at != '}'; at = json_space(at + (*at == ',')), n++)
        at = json_value_end(keys ? json_space(json_string_end(at)) + 1 : at, 0);
    return n;
}

#endif
