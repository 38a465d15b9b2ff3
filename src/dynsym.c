/* SPDX-License-Identifier: MIT */
/*
 * The names that the dynamic linker knows, without its lock.
 *
 * dladdr takes that lock, and somebody else may hold it as long as he likes: in dlopen, while an object's constructor runs. A
 * program that dies must not wait for him. _dl_find_object (glibc 2.35) takes none, and tells the object; its table of exported symbols
 * is searched here, the way dladdr does. Where libc lacks it, nothing is known but the address.
 *
 * An object that is unloaded in the very moment takes its table with it: its code must not be in use then, so nobody asks for it.
 */
#include "symbol.h"
#include "weft_internal.h"
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#ifdef DLFO_STRUCT_HAS_EH_DBASE

struct names {
    uintptr_t base;
    const ElfW(Sym) * symbol;
    const char *text;
    const uint32_t *hash; /* DT_GNU_HASH: counts, a filter, buckets, chains; */
    const uint32_t *old;  /* or DT_HASH. NULL: it has none */
};

/* The linker has made addresses of most of them. */
static const void *address(const struct link_map *map, const ElfW(Dyn) * d)
{
    uintptr_t at = d->d_un.d_ptr;
    return (const void *)(at < map->l_addr ? at + map->l_addr : at);
}

static struct names names_of(const struct link_map *map)
{
    struct names n = {.base = map->l_addr};
    for (const ElfW(Dyn) *d = map->l_ld; d != NULL && d->d_tag != DT_NULL; d++) {
        if (d->d_tag == DT_SYMTAB)
            n.symbol = address(map, d);
        else if (d->d_tag == DT_STRTAB)
            n.text = address(map, d);
        else if (d->d_tag == DT_GNU_HASH)
            n.hash = address(map, d);
        else if (d->d_tag == DT_HASH)
            n.old = address(map, d);
    }
    return n;
}

/* How many symbols there are: the last chain ends with the last of them. */
static uint32_t count_hashed(const uint32_t *hash)
{
    uint32_t buckets = hash[0], first = hash[1], last = 0;
    const uint32_t *bucket = hash + 4 + hash[2] * (sizeof(ElfW(Addr)) / sizeof *hash), *chain = bucket + buckets;
    for (uint32_t i = 0; i < buckets; i++)
        last = bucket[i] > last ? bucket[i] : last;
    if (last < first)
        return first;
    while (!(chain[last - first] & 1))
        last++;
    return last + 1;
}

/* The one that begins next before pc, and reaches so far. */
static const ElfW(Sym) * find(const struct names *n, uintptr_t pc)
{
    const ElfW(Sym) *best = NULL;
    uint32_t count = n->hash != NULL ? count_hashed(n->hash) : n->old != NULL ? n->old[1] : 0;
    for (uint32_t i = 0; n->symbol != NULL && n->text != NULL && i < count; i++) {
        const ElfW(Sym) *s = &n->symbol[i];
        uintptr_t offset = pc - (n->base + s->st_value);
        if (s->st_shndx == SHN_UNDEF || s->st_name == 0 || (s->st_info & 15) == STT_TLS)
            continue;
        if ((offset == 0 || offset < s->st_size) && (best == NULL || best->st_value < s->st_value))
            best = s;
    }
    return best;
}

void w_symbol_quick(uintptr_t pc, struct w_symbol *symbol)
{
    struct dl_find_object found;
    *symbol = (struct w_symbol){0};
    if (_dl_find_object((void *)pc, &found) != 0)
        return;
    const struct link_map *map = found.dlfo_link_map;
    struct names n = names_of(map);
    const ElfW(Sym) *s = find(&n, pc);
    const char *slash = strrchr(map->l_name, '/');
    symbol->object = map->l_name[0] == '\0' ? program_invocation_short_name : slash != NULL ? slash + 1 : map->l_name;
    symbol->name = s != NULL ? n.text + s->st_name : NULL;
    symbol->offset = pc - (s != NULL ? n.base + s->st_value : (uintptr_t)found.dlfo_map_start);
}

#else

void w_symbol_quick(uintptr_t pc, struct w_symbol *symbol)
{
    (void)pc;
    *symbol = (struct w_symbol){0};
}

#endif
