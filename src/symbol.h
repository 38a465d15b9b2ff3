/* SPDX-License-Identifier: MIT */
/* What the code at an address is called, and where it was written (symbol.c, dynsym.c). */
#ifndef W_SYMBOL_H
#define W_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strings live as long as the process. */
struct w_symbol {
    const char *name;   /* of the function, or NULL */
    const char *object; /* the program or library, without its path, or NULL: no code is there */
    const char *file;   /* as the compiler was told, or NULL */
    int line;           /* 0: not known */
    uintptr_t offset;   /* from the begin of the function or, without a name, of the object */
};

/* pc: an address in the function, of a call's return address one less. May read files; not in a signal handler, and inside no lock of
 * the runtime. */
void w_symbol_of(uintptr_t pc, struct w_symbol *symbol);

/* Closes the files that w_symbol_of has opened; what was found stays known. After the last of several. */
void w_symbols_close(void);

/* As w_symbol_of, as far as the dynamic linker tells, whose lock it takes: no lock of ours, memory or file. */
void w_symbol_linked(uintptr_t pc, struct w_symbol *symbol);

/* Likewise, without any lock (dynsym.c). May be called in a signal handler. */
void w_symbol_quick(uintptr_t pc, struct w_symbol *symbol);

/* Its name, or object+0xOFFSET, or 0xADDRESS; cut to fit. May be called in a signal handler. */
void w_symbol_text(uintptr_t pc, const struct w_symbol *symbol, char *text, size_t size);

#endif
