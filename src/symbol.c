/* SPDX-License-Identifier: MIT */
/*
 * Addresses in code as names, files and lines.
 *
 * elfutils' libdw reads the symbols and debug information of whatever is loaded. It is loaded itself when somebody first asks, so
 * that no program has to link it; what it finds is kept for good, in a table by address. Where it or the debug information is missing, the
 * dynamic linker's table of names is asked, which has the functions that are exported (-rdynamic).
 *
 * libdw knows the objects that were there when it last looked; it looks again once the linker has loaded more. It keeps the files open
 * that it reads, so whoever asks says when he has done (w_symbols_close).
 * Debug information is looked for beside the object and by build-id in /usr/lib/debug, never over a network.
 *
 * One lock for all: libdw is no library for threads. Its holder is never preempted, for this is runtime code, and what it calls is
 * libraries' code (preempt.c, PR2).
 */
#include "symbol.h"
#include "weft_internal.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef W_DW
#include <elfutils/libdwfl.h>
#endif

enum { TABLE = 1 << 14, PROBES = 8 };

struct entry {
    uintptr_t pc; /* 0: free */
    struct w_symbol symbol;
};

static struct {
    struct w_lock lock;
    struct entry *table;     /* lock; NULL: none yet */
    char **strings;          /* all that were ever given out, sorted by nothing: a hash by contents; lock */
    unsigned long long adds; /* objects that the linker had loaded when the table was begun; lock */
} cache;

/* ---- without libdw ---------------------------------------------------------------------------------------------- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

void w_symbol_linked(uintptr_t pc, struct w_symbol *symbol)
{
    Dl_info info;
    *symbol = (struct w_symbol){0};
    if (dladdr((const void *)pc, &info) == 0)
        return;
    symbol->object = last_part(info.dli_fname);
    symbol->name = info.dli_sname;
    symbol->offset = pc - (uintptr_t)(info.dli_sname != NULL ? info.dli_saddr : info.dli_fbase);
}

void w_symbol_text(uintptr_t pc, const struct w_symbol *symbol, char *text, size_t size)
{
    if (symbol->name != NULL)
        snprintf(text, size, "%s", symbol->name);
    else if (symbol->object != NULL)
        snprintf(text, size, "%s+0x%lx", symbol->object, (unsigned long)symbol->offset);
    else
        snprintf(text, size, "0x%lx", (unsigned long)pc);
}

/* ---- strings ---------------------------------------------------------------------------------------------------- */

enum { STRINGS = 1 << 14 };

static uint64_t hash_of(const char *text)
{
    uint64_t h = 0xcbf29ce484222325;
    for (; *text != '\0'; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3;
    return h;
}

/* A copy for good; the same for the same text. NULL: no memory, or too many. */
static const char *keep(const char *text)
{
    if (text == NULL)
        return NULL;
    if (cache.strings == NULL && (cache.strings = calloc(STRINGS, sizeof *cache.strings)) == NULL)
        return NULL;
    uint64_t at = hash_of(text);
    for (unsigned i = 0; i < 2 * PROBES; i++) {
        char **place = &cache.strings[(at + i) % STRINGS];
        if (*place == NULL)
            *place = strdup(text);
        if (*place == NULL || strcmp(*place, text) == 0)
            return *place;
    }
    return strdup(text);
}

/* ---- libdw ------------------------------------------------------------------------------------------------------ */

#ifdef W_DW

static struct {
    bool tried;
    void *handle;
    Dwfl *dwfl;
    __typeof__(dwfl_begin) *begin;
    __typeof__(dwfl_end) *end;
    __typeof__(dwfl_linux_proc_report) *report;
    __typeof__(dwfl_report_end) *report_end;
    __typeof__(dwfl_addrmodule) *module;
    __typeof__(dwfl_module_addrinfo) *name;
    __typeof__(dwfl_module_getsrc) *source;
    __typeof__(dwfl_lineinfo) *line;
    __typeof__(dwfl_linux_proc_find_elf) *find_elf;
    __typeof__(dwfl_build_id_find_debuginfo) *find_debuginfo;
    Dwfl_Callbacks callbacks;
} dw;

static bool find(const char *name, void *at)
{
    void *symbol = dlsym(dw.handle, name);
    memcpy(at, &symbol, sizeof symbol);
    return symbol != NULL;
}

static bool load(void)
{
    dw.handle = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL);
    return dw.handle != NULL && find("dwfl_begin", &dw.begin) && find("dwfl_end", &dw.end) &&
           find("dwfl_linux_proc_report", &dw.report) && find("dwfl_report_end", &dw.report_end) &&
           find("dwfl_addrmodule", &dw.module) && find("dwfl_module_addrinfo", &dw.name) &&
           find("dwfl_module_getsrc", &dw.source) && find("dwfl_lineinfo", &dw.line) &&
           find("dwfl_linux_proc_find_elf", &dw.find_elf) && find("dwfl_build_id_find_debuginfo", &dw.find_debuginfo);
}

static void load_locked(void)
{
    if (dw.tried)
        return;
    dw.tried = true;
    if (!load())
        dw.begin = NULL;
    dw.callbacks = (Dwfl_Callbacks){.find_elf = dw.find_elf, .find_debuginfo = dw.find_debuginfo};
}

static void open_locked(void)
{
    if (dw.begin == NULL || dw.dwfl != NULL || (dw.dwfl = dw.begin(&dw.callbacks)) == NULL)
        return;
    if (dw.report(dw.dwfl, getpid()) != 0 || dw.report_end(dw.dwfl, NULL, NULL) != 0) {
        dw.end(dw.dwfl);
        dw.dwfl = NULL;
    }
}

static void close_locked(void)
{
    if (dw.dwfl != NULL)
        dw.end(dw.dwfl);
    dw.dwfl = NULL;
}

static void ask_locked(uintptr_t pc, struct w_symbol *symbol)
{
    open_locked();
    Dwfl_Module *module = dw.dwfl != NULL ? dw.module(dw.dwfl, pc) : NULL;
    if (module == NULL)
        return;
    GElf_Off offset = 0;
    GElf_Sym sym;
    const char *name = dw.name(module, pc, &offset, &sym, NULL, NULL, NULL);
    if (name != NULL && *name != '\0') {
        symbol->name = name;
        symbol->offset = offset;
    }
    Dwfl_Line *line = dw.source(module, pc);
    if (line != NULL)
        symbol->file = dw.line(line, NULL, &symbol->line, NULL, NULL, NULL);
}

#else

static void load_locked(void)
{
}

static void close_locked(void)
{
}

static void ask_locked(uintptr_t pc, struct w_symbol *symbol)
{
    (void)pc, (void)symbol;
}

#endif

/* ---- the table -------------------------------------------------------------------------------------------------- */

static int count_changes(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(unsigned long long *)arg = info->dlpi_adds + info->dlpi_subs;
    return 1;
}

/* Objects came or went: what was known may be wrong. */
static void refresh_locked(void)
{
    unsigned long long adds = 0;
    load_locked(); /* it is an object too */
    dl_iterate_phdr(count_changes, &adds);
    if (adds == cache.adds)
        return;
    close_locked();
    if (cache.table != NULL)
        memset(cache.table, 0, TABLE * sizeof *cache.table);
    cache.adds = adds;
}

static void look_up_locked(uintptr_t pc, struct w_symbol *symbol)
{
    w_symbol_linked(pc, symbol);
    ask_locked(pc, symbol);
    symbol->name = keep(symbol->name);
    symbol->object = keep(symbol->object);
    symbol->file = keep(symbol->file);
}

static struct entry *place_locked(uintptr_t pc)
{
    if (cache.table == NULL)
        cache.table = calloc(TABLE, sizeof *cache.table);
    uint64_t at = (pc * 0x9E3779B97F4A7C15ull) >> 32;
    for (unsigned i = 0; cache.table != NULL && i < PROBES; i++) {
        struct entry *e = &cache.table[(at + i) % TABLE];
        if (e->pc == pc || e->pc == 0)
            return e;
    }
    return cache.table != NULL ? &cache.table[at % TABLE] : NULL;
}

void w_symbol_of(uintptr_t pc, struct w_symbol *symbol)
{
    w_lock(&cache.lock, W_RANK_SYMBOLS);
    refresh_locked();
    struct entry *e = place_locked(pc);
    if (e != NULL && e->pc == pc) {
        *symbol = e->symbol;
    } else {
        look_up_locked(pc, symbol);
        if (e != NULL)
            *e = (struct entry){pc, *symbol};
    }
    w_unlock(&cache.lock, W_RANK_SYMBOLS);
}

void w_symbols_close(void)
{
    w_lock(&cache.lock, W_RANK_SYMBOLS);
    close_locked();
    w_unlock(&cache.lock, W_RANK_SYMBOLS);
}
