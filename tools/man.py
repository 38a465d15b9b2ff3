#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages, made of what include/weft.h says.

    tools/man.py FOLDER         FOLDER/man3/weft_channels.3 ..., a link for each call, and FOLDER/man7/weft.7; for each
                                program in tools/ its opening comment as FOLDER/man1/NAME.1
    tools/man.py --calls        the name of each call and macro that has a page, one a line

Each part of the header (`---- channels ----`) is a page. Its description follows the header: a comment belongs to the declarations
below it up to the next empty line; behind a type, to the declarations after that as well, until another comment comes. A comment
behind a declaration on its line belongs to that one. A call that no comment belongs to is an error, so that none goes in without.
"""
import collections
import datetime
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PART = re.compile(r"^/\* -+ (.+?) -+ \*/$", re.M)
CALL = re.compile(r"\b(weft_\w*[a-z0-9])\(")
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
MACRO = re.compile(r"^#define (weft_\w*[a-z]|WEFT_\w*[A-Z])(?=[\s(])(\([^)]*\))?", re.M)

Page = collections.namedtuple("Page", "name title groups")
Group = collections.namedtuple("Group", "text declarations calls said")  # the comment; C as it is shown; names; is any of it said?


# ---- reading the header ----------------------------------------------------------------------------------------------

def without_cplusplus(text):
    """What C sees."""
    lines, skip, stack = [], 0, []
    for line in text.split("\n"):
        if line.startswith("#if"):
            stack.append("__cplusplus" in line)
            skip += stack[-1]
        elif line.startswith("#else") and stack[-1]:
            stack[-1] = False
            skip -= 1
        elif line.startswith("#endif"):
            skip -= stack.pop()
        elif skip == 0:
            lines.append(line)
            continue
        lines.append("")
    return "\n".join(lines)


def blocks_of(text):
    """What stands between empty lines, but for those inside comments and braces."""
    block, depth, comment = [], 0, False
    for line in text.split("\n") + [""]:
        if line.strip() == "" and depth == 0 and not comment:
            if block:
                yield "\n".join(block)
            block = []
            continue
        block.append(line)
        comment = line.rfind("/*") > line.rfind("*/") or (comment and "*/" not in line)
        if not comment:
            plain = re.sub(r"/\*.*?\*/", "", line)
            depth += plain.count("{") - plain.count("}")


def comment_text(raw):
    """The words of a comment without its stars."""
    lines = [re.sub(r"^\s*\*? ?", "", line, count=1) if i else line.strip() for i, line in enumerate(raw.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def split(block):
    """The comments that open a block, and the rest."""
    comments = []
    while opening := re.match(r"\s*/\*(.*?)\*/[ \t]*(?:\n|\Z)", block, re.S):
        comments.append(comment_text(opening[1]))
        block = block[opening.end():]
    return "\n\n".join(comments), block.strip("\n")


PRIVATE = re.compile(r"\b(?:weft|WEFT)_\w*_\b")


def inline_as_prototype(code):
    """A function of the header itself is shown as if it were elsewhere; of its body nobody needs to know."""
    return re.sub(r"^static inline ((?:[^;{}]|\n)*?\))\n\{.*?^\}", r"\1;", code, flags=re.M | re.S)


def shown_line(line):
    """Macros without what they stand for, unless that is a constant; nothing of what is private or a mere mention of a struct."""
    macro = MACRO.match(line)
    if line.startswith("#define"):
        return "" if not macro else macro[0] if macro[2] else COMMENT.sub("", line).rstrip()
    private = PRIVATE.search(COMMENT.sub("", line)) or re.match(r"struct \w+;|extern ", line)
    return "" if private else line


def shown(code):
    """What a page shows of declarations: neither what is private nor how it is done."""
    if re.match(r"struct weft_\w+_ \{", code):
        return ""
    code = re.sub(r"WEFT_API ", "", inline_as_prototype(code))
    code = re.sub(r" __attribute__\(\((?!noreturn).*?\)\)", "", code)
    code = re.sub(r"(typedef struct \w+) \{[^}]*\b\w+_(?:\[\w*\])?[;,][^}]*\}", r"\1", code)  # private members
    lines = [shown_line(line) for line in re.sub(r"\\\n\s*", "", code).split("\n")]
    return "\n".join(line for line in lines if line)


def calls_in(code):
    names = [name for line in COMMENT.sub("", code).split("\n") if not line.startswith(("#", "typedef"))
             for name in CALL.findall(line)]
    return list(dict.fromkeys(names + [name for name, arguments in MACRO.findall(code) if arguments]))


def is_about(code, types):
    return any(re.search(rf"\b{name}\b", code) for name in types)


def groups_of(part):
    """The declarations of a part with what is said about them. What opens the part goes for all of it, what is said of a type for
    every call that takes one."""
    groups, opening, types = [], "", []
    for block in blocks_of(part):
        comment, code = split(block)
        visible = shown(code)
        calls = calls_in(visible)
        if code and not visible and not (comment and not groups):
            continue  # private
        if comment and not calls:
            types += re.findall(r"^typedef struct (\w+)", visible, re.M)
            opening = opening or (comment if not visible else "")
        if all(name in opening for name in calls) and calls:
            comment = ""  # said before, to users; this one is for whoever changes it
        said = comment or COMMENT.search(visible) or opening or is_about(visible, types)
        groups.append(Group(comment, visible, calls, bool(said)))
    return groups


def slug(title):
    return "weft_" + re.sub(r"\W+", "_", title.removeprefix("the "))


def read():
    """The comment that opens the header, and its pages."""
    header = (ROOT / "include" / "weft.h").read_text()
    text = without_cplusplus(re.sub(r"^#(?:ifndef|define) WEFT_H$|^#endif\s*\Z", "", header, flags=re.M))
    pieces = PART.split(text)
    pages = [Page(slug(title), title, groups_of(body)) for title, body in zip(pieces[1::2], pieces[2::2])]
    opening = [comment_text(comment) for comment in COMMENT.findall(pieces[0]) if "\n" in comment][0]
    return opening, [page for page in pages if page.groups]


def undocumented(pages):
    return [call for page in pages for group in page.groups if not group.said
            for call in group.calls if call.startswith("weft_")]


# ---- writing pages ---------------------------------------------------------------------------------------------------

def escape(text):
    text = text.replace("\\", "\\e")
    return "\n".join("\\&" + line if line.startswith((".", "'")) else line for line in text.split("\n"))


def prose(text):
    """A sentence with its names in bold."""
    text = escape(text)
    text = re.sub(r"`([^`]+)`", r"\\fB\1\\fP", text)
    text = re.sub(r"(?<![\w-])-(E[A-Z]{3,})", r"\\fB\\-\1\\fP", text)
    return re.sub(r"(?<![\\\w])((?:weft|WEFT)_\w*\w)(?![\w*])", r"\\fB\1\\fP", text)


def code_line(line):
    return escape(line).replace("-", "\\-")


def is_code(line):
    return line.startswith("    ")


def paragraphs(text):
    """The lines of a comment as those of a page: indented ones are code, those with a dash are a list."""
    lines, mode = [], None
    for line in text.split("\n"):
        item = re.match(r" *- (.*)", line)
        wanted = "code" if is_code(line) and mode != "list" else "list" if item or (mode == "list" and line) else "text"
        if line == "":
            lines.append(None)
            continue
        if mode == "code" and wanted != "code":
            lines.append(".fi\n.RE")
        if wanted == "code" and mode != "code":
            lines.append(".PP\n.RS 4\n.nf")
        elif wanted == "text" and mode != "text":
            lines.append(".PP")
        if item:
            lines.append(".IP \\(bu 2")
        mode = wanted
        lines.append(code_line(line[4:]) if wanted == "code" else prose((item[1] if item else line).strip()))
    lines += [".fi\n.RE"] if mode == "code" else []
    return "\n".join(finished(lines))


def finished(lines):
    """An empty line begins a paragraph, unless something else does."""
    for i, line in enumerate(lines):
        following = next((later for later in lines[i + 1:] if later is not None), None)
        if line is not None:
            yield line
        elif following and not following.startswith("."):
            yield ".PP"


def code_block(code):
    return ".nf\n" + "\n".join(".PP" if not line else code_line(line) for line in code.split("\n")) + "\n.fi"


def date():
    seconds = os.environ.get("SOURCE_DATE_EPOCH")
    day = datetime.datetime.fromtimestamp(int(seconds), datetime.timezone.utc) if seconds else datetime.datetime.now()
    return day.strftime("%Y-%m-%d")


def version():
    return re.search(r"project\(weft VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text())[1]


def heading(name, section):
    return f'.TH {name} {section} {date()} "Weft {version()}" "Goroutines for C"'


def synopsis(page):
    blocks = [group.declarations for group in page.groups if group.declarations]
    code = "\n\n".join(COMMENT.sub("", block) if not block.startswith(("typedef", "enum")) else block for block in blocks)
    code = "\n".join(line.rstrip() for line in code.split("\n"))
    return ".SH SYNOPSIS\n.nf\n.B #include <weft.h>\n.PP\n" + code_block(code).removeprefix(".nf\n")


def description(page):
    parts = []
    for group in page.groups:
        behind = [(calls_in(line), comment_text(COMMENT.search(line)[1])) for line in group.declarations.split("\n")
                  if COMMENT.search(line) and calls_in(line)]
        if group.calls and (group.text or behind):
            parts.append(".SS " + ", ".join(f"{name}()" if name.islower() else name for name in group.calls))
        if group.text:
            parts.append(paragraphs(group.text))
        parts += [f".PP\n{prose(', '.join(names))}: {prose(text)}" for names, text in behind]
    return ".SH DESCRIPTION\n" + "\n".join(parts)


COMMON = """.SH RETURN VALUE
A call that can fail returns zero or more on success and a negative errno on failure;
.I errno
itself is no part of it.
A call that has to wait gives
.B \\-ECANCELED
or
.B \\-ETIMEDOUT
once the scope that it runs in is over, and has had no effect then; one that tries gives
.B \\-EAGAIN
where it would have to wait.
.BR weft (7)
tells what holds for every call."""


def see_also(page, pages):
    others = [other.name for other in pages if other is not page]
    return ".SH SEE ALSO\n" + "\n".join(f".BR {name} (3)," for name in others) + "\n.BR weft (7)"


def finish(parts):
    """A heading begins a paragraph by itself."""
    return re.sub(r"^(\.S[HS] .*\n)\.PP\n", r"\1", "\n".join(parts), flags=re.M) + "\n"


def calls_of(page):
    return list(dict.fromkeys(call for group in page.groups for call in group.calls))


def names_of(page):
    return list(dict.fromkeys([page.name, *calls_of(page)]))


def page_text(page, pages):
    names = ", ".join(escape(name) for name in names_of(page))
    return finish([heading(page.name, 3), f".SH NAME\n{names} \\- Weft: {page.title}", synopsis(page), description(page),
                   COMMON, see_also(page, pages)])


# The variables that no field of weft_config stands for.
VARIABLES = {
    "WEFT_DEBUG": "words with commas between: `schedtrace=MS` prints a line about the scheduler every so many milliseconds, `leaks` lists "
                  "who is alive at the end, `comm` names threads after goroutines, `fifo` turns short cuts in the queues off",
    "WEFT_TRACE": "a file that an execution trace of the whole run goes to, as with weft_trace_start",
    "WEFT_FLIGHT": "so many MB of memory keep the last events, as with weft_flight_start",
    "WEFT_FLIGHT_FILE": "where the flight recorder's events go when the program crashes or deadlocks; else weft-flight-PID.json",
    "WEFT_PROFILE": "a file, .folded, .txt, .pb or .pb.gz, that a profile of the whole run goes to, as with weft_profile_start",
    "WEFT_HTTP": "the address, such as 127.0.0.1:8080, that the live page is served on during every run, as with weft_http_start",
    "WEFT_HTTP_TOKEN": "8 to 64 letters, digits and -._~ without which nobody sees that page; if there is none and the address is not the "
                       "loopback's, one is made and printed on stderr",
    "WEFT_URING": "0 keeps files away from io_uring",
    "WEFT_SYSFS": "a folder that stands in for /sys, where cores, caches and nodes are read from",
}


def environment(pages):
    """The variables that weft_config mentions, and the others."""
    code = next(group.declarations for page in pages for group in page.groups if "struct weft_config {" in group.declarations)
    found = re.findall(r"^ +[\w ]+?(\w+);\s*/\* (WEFT_\w+)(.*?) \*/", code, re.M)
    entries = [(name, f"{prose(text.lstrip(':').strip())} (field {escape(field)} of weft_config)") for field, name, text in found]
    entries += [(name, prose(text)) for name, text in VARIABLES.items()]
    return ".SH ENVIRONMENT\n" + "\n".join(f".TP\n.B {name}\n{text}" for name, text in entries) + \
        "\n.PP\n" + prose("What makes no sense is named on stderr, and weft_run returns -EINVAL.")


def overview(opening, pages):
    title, rest = opening.split("\n", 1)
    listing = "\n".join(f".TP\n.BR {page.name} (3)\n{', '.join(calls_of(page)) or page.title}" for page in pages)
    example = (ROOT / "examples" / "hello.c").read_text().split("*/\n", 2)[-1].strip("\n")
    return finish([heading("weft", 7), f".SH NAME\nweft \\- {prose(title.split(': ')[1].rstrip('.'))}",
                   ".SH SYNOPSIS\n.nf\n.B #include <weft.h>\n.PP\ncc app.c $(pkg-config --cflags --libs weft)\n.fi",
                   ".SH DESCRIPTION\n" + paragraphs(rest.strip("\n")), ".SH CALLS\n" + listing, environment(pages),
                   ".SH EXAMPLES\n" + code_block(example),
                   ".SH SEE ALSO\n" + "\n".join(f".BR {page.name} (3)," for page in pages).rstrip(",")])


def tool_page(tool):
    """Of a program that opens with `NAME: what it is` and what it is called with."""
    opening = comment_text(COMMENT.findall(tool.read_text())[1])
    title, text = opening.strip("\n").split("\n", 1)
    return finish([heading(tool.stem, 1), f".SH NAME\n{tool.stem} \\- {prose(title.split(': ', 1)[1].rstrip('.'))}",
                   ".SH DESCRIPTION\n" + paragraphs(text.strip("\n")), ".SH SEE ALSO\n.BR weft (7)"])


# ---- all together ----------------------------------------------------------------------------------------------------

def write(folder, opening, pages):
    for section in ("man1", "man3", "man7"):
        (folder / section).mkdir(parents=True, exist_ok=True)
        for old in (folder / section).iterdir():
            old.unlink()
    for page in pages:
        for name in names_of(page):
            link = f".so man3/{page.name}.3\n"
            (folder / "man3" / f"{name}.3").write_text(page_text(page, pages) if name == page.name else link)
    (folder / "man7" / "weft.7").write_text(overview(opening, pages))
    for tool in ROOT.glob("tools/*.c"):
        (folder / "man1" / f"{tool.stem}.1").write_text(tool_page(tool))
    if not any((folder / "man1").iterdir()):
        (folder / "man1").rmdir()


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: man.py FOLDER | --calls")
    opening, pages = read()
    if missing := undocumented(pages):
        sys.exit(f"man: include/weft.h says nothing about {', '.join(missing)}")
    if sys.argv[1] == "--calls":
        print("\n".join(call for page in pages for call in calls_of(page)))
    else:
        write(pathlib.Path(sys.argv[1]), opening, pages)
    return 0


if __name__ == "__main__":
    sys.exit(main())
