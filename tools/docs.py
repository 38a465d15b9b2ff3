#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The documentation as HTML: tools/docs.py MAN FOLDER

README.md (as index.html), HACKING.md, CHANGELOG.md and docs/*.md through pandoc, and the manual pages in MAN (tools/man.py makes
them) through mandoc. All pages share one style sheet and a line of links; a link from one document to another leads to its page.
"""
import concurrent.futures
import html
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STYLE = """body { max-width: 52rem; margin: 0 auto; padding: 1rem; font: 1rem/1.5 system-ui, sans-serif; color: #222; background: #fff }
nav { border-bottom: 1px solid #8886; padding-bottom: .5rem; margin-bottom: 1rem }
pre { overflow-x: auto; padding: .75rem; background: #8881; border-radius: 4px }
code, pre, .Nm, .Fn { font-family: ui-monospace, monospace; font-size: .9em }
table { border-collapse: collapse; display: block; overflow-x: auto }
td, th { border: 1px solid #8886; padding: .25rem .5rem; text-align: left; vertical-align: top }
table.head, table.foot { display: table; width: 100% } table.head td, table.foot td { border: 0 }
a { color: #0645ad }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #161616 } a { color: #8ab4f8 } }
@media print { nav { display: none } }
"""
FIRST = ("tutorial", "from-go", "limits", "design", "inside", "benchmarks")  # in the line of links, if they are there


def documents():
    """The page of each document, by its path from the root."""
    found = {"README.md": "index.html"}
    for path in [ROOT / "HACKING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/*.md"))]:
        found[str(path.relative_to(ROOT))] = f"{path.stem}.html"
    return found


def navigation(pages):
    links = ["index", *(name for name in FIRST if f"{name}.html" in pages.values()), "weft.7"]
    return "<nav>" + " · ".join(f'<a href="{name}.html">{html.escape(name)}</a>' for name in links) + "</nav>"


def page(title, body, pages):
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{html.escape(title)}</title>\n'
            f'<link rel="stylesheet" href="style.css">\n</head>\n<body>\n{navigation(pages)}\n{body}\n</body>\n</html>\n')


def convert(command, text=None):
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0 or done.stderr:
        sys.exit(f"docs: {' '.join(command)}: {done.stderr}")
    return done.stdout


def linked(body, document, pages):
    """Links to documents lead to their pages; those to other files of the tree keep the file's name and no link."""
    folder = os.path.dirname(document)

    def link(match):
        target, _, anchor = match[1].partition("#")
        path = os.path.normpath(os.path.join(folder, target)) if target else document
        if "://" in target:
            return match[0]
        if path not in pages:
            return f"<span>{match[2]}</span>"
        return f'<a href="{pages[path] if target else ""}{"#" + anchor if anchor else ""}">{match[2]}</a>'

    return re.sub(r'<a\s+href="([^"]*)"[^>]*>(.*?)</a>', link, body, flags=re.S)


def document_page(document, pages):
    body = convert(["pandoc", "--from=gfm", "--to=html", "--no-highlight", str(ROOT / document)])
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.S)
    return page(re.sub(r"<[^>]*>", "", title[1]) if title else document, linked(body, document, pages), pages)


def manual_page(path, pages):
    body = convert(["mandoc", "-T", "html", "-O", "fragment,man=%N.%S.html", str(path)])
    return page(path.name, body, pages)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: docs.py MAN FOLDER")
    manual, folder = (pathlib.Path(word) for word in sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    pages = documents()
    (folder / "style.css").write_text(STYLE)
    work = {pages[document]: (document_page, document) for document in pages}
    work.update({f"{path.name}.html": (manual_page, path) for path in manual.glob("man?/*")
                 if not path.read_text().startswith(".so")})
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, text in zip(work, pool.map(lambda job: job[0](job[1], pages), work.values())):
            (folder / name).write_text(text)
    print(f"{folder}/index.html and {len(work) - 1} other pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
