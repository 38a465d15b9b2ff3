#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes one file of the library, for programs that want no build of it: weft.c, with weft.h beside it.

    tools/amalgamate.py FOLDER          then: cc -O2 -c FOLDER/weft.c -pthread

The sources are those that CMakeLists.txt names: first the headers, each once and before whoever needs it, then the files, then the
context switch of each processor as assembly. What files of their own do not have to care about is mended on the way:

    names       A static name (function, variable, constant, tag) that another file has as well gets its file's name in front.
                Macros of a file end with it. Members of structs are nobody's concern and keep theirs.
    weft_text   The build moves the library's code into this section, by which preemption knows it (src/code.c). Here each function
                is told to go there, by an attribute in front of its definition.
    symbols     What the files share is hidden from whoever links the result, but for the calls of weft.h.
    options     -fno-strict-aliasing becomes a pragma, where the compiler has one.

    data        Assembly that takes in whole files has their bytes.

What depends on the machine is decided by the compiler, not by the machine that this runs on: the processor, and which of the optional
libraries' headers are there. -DWEFT_NO_URING leaves out what uses liburing, and so on.
"""
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PROCESSORS = {"__x86_64__": "switch_x86_64.S", "__aarch64__": "switch_aarch64.S"}

TOKEN = re.compile(r"""(?P<comment>/\*.*?\*/|//[^\n]*)
                     | (?P<line>(?<![^\n])[ \t]*\#(?:/\*.*?\*/|\\\n|[^\n])*)
                     | (?P<text>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
                     | (?P<word>[A-Za-z_]\w*)
                     | (?P<space>\s+)
                     | (?P<other>->|\d[\w.]*|.)""", re.S | re.X)
LOCAL_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)".*\n', re.M)
WITH_GROUP = ("__attribute__", "__asm__", "_Atomic", "_Alignas", "_Static_assert", "__typeof__")


class Token:
    def __init__(self, kind, text):
        self.kind, self.text = kind, text


def fail(message):
    sys.exit(f"amalgamate: {message}")


def tokens_of(text):
    return [Token(match.lastgroup, match[0]) for match in TOKEN.finditer(text)]


def solid(tokens):
    """Without space, comments and preprocessor lines."""
    return [token for token in tokens if token.kind not in ("space", "comment", "line")]


# ---- declarations ----------------------------------------------------------------------------------------------------

def items_of(tokens):
    """The declarations and definitions of a file, each a list of solid tokens; yields (tokens, is a function's definition)."""
    item, depth, body = [], 0, False
    for token in solid(tokens):
        if token.text == "{" and depth == 0 and item:
            body = item[-1].text == ")" and all(t.text != "=" for t in item)
        item.append(token)
        depth += (token.text in ("{", "(", "[")) - (token.text in ("}", ")", "]"))
        if depth == 0 and (token.text == ";" or (body and token.text == "}")):
            yield item, body
            item, body = [], False


def without_groups(item):
    """The tokens of an item that stand in no brackets, each with the text of what comes next to it; attributes are left out."""
    flat, depth, skip = [], 0, False
    for token in item:
        if depth == 0 and token.text in WITH_GROUP:
            skip = True
            continue
        opens = token.text in ("{", "(", "[")
        if depth == 0 and not (skip and opens):
            flat.append(token)
        depth += opens - (token.text in ("}", ")", "]"))
        if depth == 0:
            skip = False
    return [(token, flat[i + 1].text if i + 1 < len(flat) else "") for i, token in enumerate(flat)]


def declared(item, is_function):
    """The names that an item gives to functions or variables."""
    flat = without_groups(item)
    if is_function:
        return [token.text for token, following in flat if token.kind == "word" and following == "("][-1:]
    if item[0].text == "typedef":
        return [token.text for token, _ in flat if token.kind == "word"][-1:]
    names, after_equals = [], False
    for token, following in flat:
        after_equals = token.text == "=" or (after_equals and token.text != ",")
        if token.kind == "word" and not after_equals and following in (";", ",", "=", "[", "("):
            names.append(token.text)
    return names


def constants(item):
    """The names in the enums of an item."""
    names, depth, inside = [], 0, None
    for i, token in enumerate(item):
        if token.text == "{" and inside is None and "enum" in (item[i - 1].text, item[i - 2].text):
            inside = depth
        if inside is not None and depth == inside + 1 and token.kind == "word" and item[i - 1].text in ("{", ","):
            names.append(token.text)
        depth += (token.text in ("{", "(")) - (token.text in ("}", ")"))
        if depth == inside:
            inside = None
    return names


def tags(item):
    """The structs, unions and enums that an item defines."""
    return [name.text for kind, name, brace in zip(item, item[1:], item[2:])
            if kind.text in ("struct", "union", "enum") and name.kind == "word" and brace.text == "{"]


def take_includes(text):
    """The system headers that a file includes in any case, and the text without those. The rest stays where it is."""
    taken, left, depth, guard = [], [], 0, 1 if re.search(r"^#ifndef \w+_H$", text, re.M) else 0
    for line in text.split("\n"):
        depth += bool(re.match(r"\s*#\s*if", line)) - bool(re.match(r"\s*#\s*endif", line))
        include = re.match(r"#\s*include\s+<(.+)>", line)
        if include and depth <= guard:
            taken.append(include[1])
        else:
            left.append(line)
    return [name for name in taken if name != "weft.h"], "\n".join(left)


class File:
    """A source or a header: its tokens, and the names that it has at file scope."""

    def __init__(self, path):
        self.path, self.stem = path, re.sub(r"\W", "_", path.stem)
        text = path.read_text()
        self.includes = [name for name in LOCAL_INCLUDE.findall(text) if name != "weft.h"]
        self.system, text = take_includes(text)
        self.macros = re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", text, re.M)
        self.tokens = tokens_of(LOCAL_INCLUDE.sub("", text))
        self.names, self.constants, self.tags, self.functions, self.variables = set(), set(), set(), [], []
        for item, is_function in items_of(self.tokens):
            self.take(item, is_function)

    def take(self, item, is_function):
        words = [token.text for token in item]
        names = declared(item, is_function)
        own = words[0] in ("static", "typedef") or (is_function and not names[0].startswith(("w_", "weft_")))
        if is_function:
            own = own or "static" in words[:words.index("{")]
            self.functions.append((item[0], names[0], own))
        if own:
            self.names.update(names)
        elif not is_function and words[0] != "extern" and names and "(" not in (t.text for t, _ in without_groups(item)):
            self.variables.append((item[0], names[0]))
        self.constants.update(constants(item))
        self.tags.update(tags(item))


# ---- names that two files have ---------------------------------------------------------------------------------------

def clashes(files, headers):
    """For each source the names, and the tags, that it has to call otherwise: all its static functions and variables, as libc may
    have a function of that name too, and the constants and tags that others have as well."""
    count = collections.Counter(name for file in files + headers for name in file.names | file.constants)
    tag_count = collections.Counter(tag for file in files + headers for tag in file.tags)
    for file in headers:
        twice = [name for name in file.names if count[name] > 1 and any(name in other.names for other in headers
                                                                        if other is not file)]
        twice += [f"struct {tag}" for tag in file.tags if sum(tag in other.tags for other in headers) > 1]
        if twice:
            fail(f"two headers have {', '.join(twice)}")
    return {file: (file.names | {name for name in file.constants if count[name] > 1},
                   {tag for tag in file.tags if tag_count[tag] > 1}) for file in files}


def member_positions(tokens):
    """The tokens that name members: what stands before ; , [ or : inside the braces of a struct or union."""
    members, stack, words = set(), [], solid(tokens)
    for i, token in enumerate(words):
        if token.text == "{":
            stack.append(any(words[k].text in ("struct", "union") for k in (i - 1, i - 2) if k >= 0))
        elif token.text == "}":
            stack.pop()
        elif token.kind == "word" and stack and stack[-1] and words[i + 1].text in (";", ",", "[", ":"):
            members.add(id(token))
    return members


def rename(file, names, tag_names):
    """In place."""
    members, words = member_positions(file.tokens), solid(file.tokens)
    for i, token in enumerate(words):
        before = words[i - 1].text if i > 0 else ""
        if token.kind != "word" or before in (".", "->") or id(token) in members:
            continue
        is_tag = before in ("struct", "union", "enum")
        if token.text in (tag_names if is_tag else names):
            token.text = f"{file.stem}_{token.text}"
    pattern = re.compile(rf"(?<![\w.>])({'|'.join(map(re.escape, sorted(names)))})\b") if names else None
    for token in file.tokens:
        if pattern and token.kind == "line":
            token.text = pattern.sub(rf"{file.stem}_\1", token.text)


# ---- the parts of the result -----------------------------------------------------------------------------------------

def mark(file, wanted):
    """Functions go into their section, what is no call of weft.h is hidden, and what the assembly calls is kept."""
    for first, name, is_static in file.functions:
        hidden = "" if is_static or name.startswith("weft_") else "W_KEPT " if name in wanted else "W_HIDDEN "
        first.text = f"W_CODE {hidden}{first.text}"
    for first, name in file.variables:
        if file.path.suffix == ".c" and not name.startswith("weft_"):
            first.text = f"W_HIDDEN {first.text}"


def undefine(file):
    """The macros of a source end with it."""
    return "".join(f"#undef {name}\n" for name in dict.fromkeys(file.macros) if not name.startswith("W_"))


def banner(name):
    return f"\n/* ==== {name} {'=' * (113 - len(name))} */\n\n"


def body_of(file, condition=None):
    text = "".join(token.text for token in file.tokens).strip("\n") + "\n"
    text = re.sub(r"\A/\* SPDX[^\n]*\*/\n", "", text) + (undefine(file) if file.path.suffix == ".c" else "")
    if condition:
        text = f"#ifdef {condition}\n{text}#endif\n"
    return banner(str(file.path.relative_to(ROOT))) + text


def assembly(name):
    """A file of assembly as a statement at file scope, its macros of constants put in."""
    text = re.sub(r"/\*.*?\*/", "", (SOURCE / name).read_text(), flags=re.S)
    for macro, value in re.findall(r"^#define (\w+) (\S+)$", text, re.M):
        text = re.sub(rf"\b{macro}\b", value, text)
    lines = [line.rstrip() for line in text.split("\n") if line.strip() and not line.startswith("#define")]
    if odd := [line for line in lines if re.match(r"\s*#\s*[a-z]+\b", line)]:
        fail(f"{name}: cannot do without a preprocessor: {odd[0]}")
    quoted = "".join('    "%s\\n"\n' % line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return f'__asm__("\\t.pushsection .text\\n"\n{quoted}    "\\t.popsection\\n");\n'


def assemblies():
    text, word = banner("the context switch"), "if"
    for macro, name in PROCESSORS.items():
        text += f"#{word} defined({macro})\n{assembly(name)}"
        word = "elif"
    return text + '#else\n#error "Weft knows x86-64 and aarch64"\n#endif\n'


def taken_in(path):
    """Assembly that takes in whole files, by its macro `file symbol, folder, name`, as symbols with their bytes."""
    text = banner(str(path.relative_to(ROOT)))
    found = re.findall(r"^\s+file (\w+), \w+, (\S+)$", path.read_text(), re.M)
    if not found:
        fail(f"{path}: neither a context switch nor files that are taken in")
    for symbol, name in found:
        data = (path.parent / name).read_bytes()
        lines = [f".globl {symbol}, {symbol}_end", f".hidden {symbol}, {symbol}_end", f"{symbol}:"]
        lines += [f".byte {','.join(map(str, data[i:i + 24]))}" for i in range(0, len(data), 24)]
        lines += [f"{symbol}_end:", ".byte 0"]
        quoted = "".join(f'    "{line}\\n"\n' for line in lines)
        text += f'__asm__(".pushsection .rodata\\n"\n{quoted}    ".popsection\\n");\n'
    return text


def preamble(version, systems, optional):
    text = f"""/* SPDX-License-Identifier: MIT */
/*
 * Weft {version}: goroutines for C. All of the library in one file, made by tools/amalgamate.py of its sources.
 *
 *      cc -O2 -c weft.c -pthread
 *
 * Programs include weft.h and are linked with weft.o and -pthread. It is C11 with GNU extensions, for Linux on x86-64 and aarch64.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-strict-aliasing")
#endif
#include "weft.h"
"""
    text += "".join(f"#include <{name}>\n" for name in systems)
    for macro, header in optional.items():
        text += f"#if !defined(WEFT_NO_{macro[2:]}) && __has_include(<{header}>)\n#define {macro}\n#include <{header}>\n#endif\n"
    return text + """
/* The section by which preemption knows the library's code, and what only this file may see. */
#define W_CODE   __attribute__((section("weft_text")))
#define W_HIDDEN __attribute__((visibility("hidden")))
#if defined(__GNUC__) && !defined(__clang__)
#define W_KEPT __attribute__((visibility("hidden"), used, externally_visible))
#else
#define W_KEPT __attribute__((visibility("hidden"), used))
#endif
"""


# ---- what there is ---------------------------------------------------------------------------------------------------

SOURCES = r"\b(?:src|web)/\w+\.[cS]\b"


def listed(text):
    """The sources that CMakeLists.txt names, each with the macro that it is built with only, or None."""
    block = re.search(r"^set\(sources\s+(.*?)\)", text, re.M | re.S)
    if not block:
        fail("CMakeLists.txt has no sources")
    sources = [(name, None) for name in re.findall(SOURCES, block[1])]
    for variable in re.findall(r"\$\{(\w+)\}", block[1]):
        found = re.search(rf"set\({variable} ([^)]*)\)(?:\s+target_compile_definitions\(\w+ INTERFACE (\w+))?", text)
        if found and variable != "switch":
            sources += [(name, found[2]) for name in re.findall(SOURCES, found[1])]
    return sources


def optional_headers(text):
    """The macros that CMakeLists.txt defines where a header is found, with that header."""
    looks = re.findall(r"(?:find_path\(\w+|check_include_file\()\s*([\w/.-]+\.h)\b(.*?INTERFACE (W_\w+))", text, re.S)
    return {macro: header for header, _, macro in looks}


def headers_of(files):
    """In an order in which each comes after those that it includes."""
    known, order = {}, []

    def visit(file):
        for name in file.includes:
            path = file.path.parent / name
            path = path if path.exists() else SOURCE / name
            if path not in known:
                known[path] = File(path)
                visit(known[path])
                order.append(known[path])

    for file in files:
        visit(file)
    return order


def amalgamate():
    build = (ROOT / "CMakeLists.txt").read_text()
    sources, optional = listed(build), optional_headers(build)
    files = [File(ROOT / name) for name, _ in sources if name.endswith(".c")]
    conditions = {ROOT / name: condition for name, condition in sources}
    headers = headers_of(files)
    systems = sorted({name for file in files + headers for name in file.system} - set(optional.values()))
    for file, (names, tag_names) in clashes(files, headers).items():
        rename(file, names, tag_names)
    wanted = set(re.findall(r"\bw_\w+", "".join((SOURCE / name).read_text() for name in PROCESSORS.values())))
    for file in files + headers:
        mark(file, wanted)
    version = re.search(r"project\(weft VERSION (\S+)", build)[1]
    parts = [preamble(version, systems, optional)]
    parts += [body_of(file) for file in headers] + [body_of(file, conditions[file.path]) for file in files]
    parts += [taken_in(ROOT / name) for name, _ in sources if name.endswith(".S")]
    return "".join(parts) + assemblies()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: amalgamate.py FOLDER")
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    text = amalgamate()
    (folder / "weft.c").write_text(text)
    (folder / "weft.h").write_text((ROOT / "include" / "weft.h").read_text())
    print(f"{folder}/weft.c: {text.count(chr(10))} lines; cc -O2 -c {folder}/weft.c -pthread")
    return 0


if __name__ == "__main__":
    sys.exit(main())
