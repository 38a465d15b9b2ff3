#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that every ordered atomic operation in src/ says what it pairs with.

    untagged   an operation that is not relaxed has a tag such as [RQ-1] in a comment on its line. For a statement that
               spans lines, any of its lines will do, or the comment directly above it.
    lone       a tag stands at two ends or more. Only comments beside code count, not the prose at the top of a file; an
               operation that pairs with itself in another thread names its tag twice.
    untold     one tag at least of each sequentially consistent operation has a section in docs/memory-order.md: a
               heading, or bold text, that contains it.

src/atomic.h, which defines the operations, is exempt. Prints file:line reasons, then "ok orders" or "FAIL orders".
With --self-test it judges snippets whose verdict is known instead.
"""
import bisect
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORY = "docs/memory-order.md"
EXEMPT = "src/atomic.h"

TAG = re.compile(r"\[([A-Z]{1,6}-[0-9]+)\]")
SHORT = r"\b(?:ld|st|xchg|add|sub|or|and|xor|cas)_"
# An atomic_ function without _explicit, and the old __sync_ built-ins, are sequentially consistent too.
IMPLICIT = (r"\batomic_(?:load|store|exchange|compare_exchange_(?:strong|weak)|fetch_(?:add|sub|or|and|xor)"
            r"|flag_test_and_set|flag_clear)\s*\(|\b__sync_\w+")
SEQUENTIAL = re.compile(SHORT + r"seq\b|\bw_fence_seq\b|\bmemory_order_seq_cst\b|\b__ATOMIC_SEQ_CST\b|" + IMPLICIT)
ORDERED = re.compile(SEQUENTIAL.pattern + "|" + SHORT + r"(?:acquire|release|acq_rel)\b"
                     r"|\bmemory_order_(?!relaxed\b)\w+|\b__ATOMIC_(?:CONSUME|ACQUIRE|RELEASE|ACQ_REL)\b")
LEXEME = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
HEADER = re.compile(r"^(?:\}\s*)?(?:else\s+)?(?:if|while|for|switch)\b.*\)$|^(?:\}\s*)?(?:else|do)$", re.S)

Comment = collections.namedtuple("Comment", "first last text")  # lines count from 0


class Source:
    """A C file: its lines without comments and strings, and its comments."""

    def __init__(self, name, text):
        self.name = name
        self.comments = []
        starts = [m.end() for m in re.finditer("\n", text)]

        def blank(match):
            lexeme = match.group()
            if lexeme[0] == "/":
                first = bisect.bisect_right(starts, match.start())
                self.comments.append(Comment(first, first + lexeme.count("\n"), lexeme))
            return re.sub(r"[^\n]", " ", lexeme)

        self.code = LEXEME.sub(blank, text).split("\n")

    def has_code(self, line):
        return self.code[line].strip() != ""

    def statements(self):
        """Yields (first, last) line of each statement, header of a block, or preprocessor directive."""
        first = None
        for i, line in enumerate(self.code):
            if first is None and line.strip() == "":
                continue
            first = i if first is None else first
            if complete("\n".join(self.code[first:i + 1]).strip()):
                yield first, i
                first = None
        if first is not None:
            yield first, len(self.code) - 1

    def comments_of(self, first, last):
        """The comments that begin on these lines; for several lines also the one directly above."""
        for c in self.comments:
            beside = first <= c.first <= last
            above = c.last == first - 1 and not any(map(self.has_code, range(c.first, c.last + 1)))
            if beside or (above and first < last):
                yield c


def complete(text):
    if text.startswith("#"):
        return not text.endswith("\\")
    if text.count("(") > text.count(")"):
        return False
    return text[-1:] in tuple(";{}:") or bool(HEADER.match(text))


def tags_in(comments):
    return [tag for c in comments for tag in TAG.findall(c.text)]


class Check:
    def __init__(self, sources, story):
        self.reasons = []
        self.sources = [s for s in sources if s.name != EXEMPT]
        self.told = None if story is None else told_tags(story)
        self.ends = collections.Counter()
        self.where = {}

    def reject(self, source, line, kind, text):
        self.reasons.append((source.name, line + 1, kind, text))

    def run(self):
        for source in self.sources:
            beside_code = {c for c in source.comments if source.has_code(c.first)}
            for first, last in source.statements():
                beside_code |= self.judge(source, first, last)
            self.count(source, beside_code)
        for tag, n in self.ends.items():
            if n == 1:
                self.reject(*self.where[tag], "lone", f"[{tag}] stands here and nowhere else")
        return sorted(self.reasons)

    def judge(self, source, first, last):
        """Judges one statement; returns the comments that speak for it, if it is ordered."""
        lines = [i for i in range(first, last + 1) if ORDERED.search(source.code[i])]
        if not lines:
            return set()
        comments = set(source.comments_of(first, last))
        tags = tags_in(comments)
        line, operation = lines[0], ORDERED.search(source.code[lines[0]]).group().rstrip("( ")
        if not tags:
            self.reject(source, line, "untagged", f"{operation} has no tag")
        elif any(SEQUENTIAL.search(source.code[i]) for i in lines):
            self.judge_story(source, line, operation, tags)
        return comments

    def judge_story(self, source, line, operation, tags):
        if self.told is None:
            self.reject(source, line, "untold", f"{operation}: there is no {STORY} that tells [{tags[0]}]")
        elif not self.told.intersection(tags):
            names = " or ".join(f"[{tag}]" for tag in tags)
            self.reject(source, line, "untold", f"{operation}: {STORY} has no section for {names}")

    def count(self, source, comments):
        for c in comments:
            for tag in TAG.findall(c.text):
                self.ends[tag] += 1
                self.where[tag] = source, c.first


def told_tags(story):
    """The tags in the headings and the bold text of the story, in brackets or without."""
    shown = re.findall(r"^#+ .*$|\*\*.+?\*\*", story, re.M)
    return {tag for text in shown for tag in re.findall(r"\b[A-Z]{1,6}-[0-9]+\b", text)}


def check_tree():
    sources = [Source(path.relative_to(ROOT).as_posix(), path.read_text()) for path in sorted([*ROOT.glob("src/*.[ch]"), *ROOT.glob("web/*.[ch]")])]
    story = ROOT / STORY
    reasons = Check(sources, story.read_text() if story.exists() else None).run()
    for name, line, _, text in reasons:
        print(f"{name}:{line}: {text}")
    print("FAIL orders\n0 passed, 1 failed" if reasons else "ok orders\n1 passed, 0 failed")
    return bool(reasons)


# ---- self-test ------------------------------------------------------------------------------------------------------

PAIR = "a = ld_acquire(&x); /* [AA-1] */\n"  # the other end of AA-1
TOLD = "# [AA-1] a heading\ntext of [BB-1]\n- **BB-2**: bold\n"

# name: (source, the reasons expected as kind@line)
SNIPPETS = {
    "pair": (PAIR + "st_release(&x, 1); /* [AA-1] publishes */\n", ""),
    "untagged": (PAIR + PAIR + "st_release(&x, 1); /* publishes */\n", "untagged@3"),
    "tag_in_code_is_none": (PAIR + PAIR + 'st_release(&x, "[AA-1]");\n', "untagged@3"),
    "tag_on_the_next_line_is_none": (PAIR + "if (cas_acquire(&x, &o, 1))\n    f(); /* [AA-1] */\n", "untagged@2"),
    "tag_above_one_line_is_none": (PAIR + PAIR + "/* [AA-1] */\nst_release(&x, 1);\n", "untagged@4"),
    "tag_above_several_lines": (PAIR + "/* [AA-1]\n   so */\nst_release(&x,\n    1);\n", ""),
    "tag_further_above_is_none": (PAIR + PAIR + "/* [AA-1] */\n\nst_release(&x,\n    1);\n", "untagged@5"),
    "tag_on_another_line_of_it": (PAIR + "return a && /* [AA-1] */\n    cas_acq_rel(&x, &o, 1);\n", ""),
    "comment_that_goes_on": (PAIR + "st_release(&x, 1); /* publishes\n    the slot [AA-1] */\n", ""),
    "macro": (PAIR + "#define PUT(v) \\\n    st_release(&x, v) /* [AA-1] */ \\\n", ""),
    "macro_untagged": (PAIR + PAIR + "#define PUT(v) \\\n    st_release(&x, v)\n", "untagged@4"),
    "block_header": (PAIR + "} else if (cas_release(&x, &o, 1)) { /* [AA-1] */\n    f();\n}\n", ""),
    "relaxed": ("ld_relaxed(&x);\natomic_fetch_or_explicit(&x, 1, memory_order_relaxed);\n", ""),
    "other_names": ("w_m_acquire(m, p);\nw_p_release(p);\natomic_init(&x, 0);\natomic_bool b;\n", ""),
    "explicit_order": (PAIR + PAIR + "atomic_store_explicit(&x, 1, memory_order_release);\n", "untagged@3"),
    "implicit_order": (PAIR + PAIR + "atomic_store(&x, 1);\n", "untagged@3"),
    "builtin": (PAIR + PAIR + "__atomic_store_n(&x, 1, __ATOMIC_RELEASE);\n", "untagged@3"),
    "in_a_comment": ("/* ld_acquire(&x) */\n// st_release\n", ""),
    "lone": (PAIR, "lone@1"),
    "prose_is_no_end": ("/* About [AA-1]. */\n\n" + PAIR, "lone@3"),
    "pairs_with_itself": ("add_acq_rel(&x, 1); /* [AA-1] mine; the others' [AA-1] */\n", ""),
    "end_beside_a_plain_call": (PAIR + "create(&x); /* [AA-1] */\n", ""),
    "fence_told": (PAIR + "w_fence_seq(); /* [AA-1] */\n", ""),
    "fence_untagged": ("w_fence_seq();\n", "untagged@1"),
    "fence_untold": ("w_fence_seq(); /* [BB-1] */\nld_seq(&x); /* [BB-1] */\n", "untold@1 untold@2"),
    "told_in_bold": ("xchg_seq(&x, 1); /* [BB-2] */\nld_seq(&x); /* [BB-2] */\n", ""),
    "told_by_one_tag": (PAIR + "cas_seq(&x, &o, 1); /* [BB-1] [AA-1] */\nld_acquire(&x); /* [BB-1] */\n", ""),
}


def verdict(text, story):
    return " ".join(f"{kind}@{line}" for _, line, kind, _ in Check([Source("src/x.c", text)], story).run())


def self_test():
    failed = 0
    cases = [(name, verdict(text, TOLD), expected) for name, (text, expected) in SNIPPETS.items()]
    cases.append(("no_story", verdict("ld_seq(&x); /* [AA-1] */\n" + PAIR, None), "untold@1"))
    exempt = Check([Source(EXEMPT, "#define ld_acquire(p) atomic_load_explicit(p, memory_order_acquire)\n")], TOLD)
    cases.append(("definitions_are_exempt", " ".join(map(str, exempt.run())), ""))
    for name, got, expected in cases:
        ok = got == expected
        failed += not ok
        print(f"ok orders_{name}" if ok else f"FAIL orders_{name}: expected '{expected}', got '{got}'")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if sys.argv[1:] not in ([], ["--self-test"]):
        sys.exit("usage: check-orders.py [--self-test]")
    sys.exit(self_test() if sys.argv[1:] else check_tree())
