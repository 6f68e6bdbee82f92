#!/usr/bin/env python3
"""Checks the documentation, and prepares links for the book (book.toml).

  book.py links     is a preprocessor of mdbook: links to files that are not pages become links to the repository
  book.py pages     checks links and anchors of every Markdown page of the tree
  book.py html DIR  checks links and anchors of the book that mdbook wrote into DIR
  book.py words     counts the words of the product documentation; exit status 1 above the limit

`words` counts README.md of the tree and the pages of the book in the parts Tutorials, How-to guides, Reference and
Explanation, as `wc -w` does, with tables and code. It leaves out decisions, and blocks between `<!-- generated`
and `<!-- end of generated -->` (a test compares those with the program). The part "Specifications" is for implementers
and has no limit: its sum is printed. Pages of the notebook (docs/notebook/README.md lists them) do not count.
"""

import html.parser
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/equic/equic"
# Maximum number of words of the product documentation. Lower it when the count falls.
LIMIT = 25_000
OTHERS = ("Specifications",)

FENCE = re.compile(r"^ *(```|~~~).*?^ *\1[^\n]*$|(?:(?<=\n\n)|\A)(?: {4,}|\t)(?![*-] )[^\n]*"
                   r"(?:\n(?: {4,}|\t)[^\n]*|\n(?=\n* {4}))*", re.S | re.M)
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s]+)\)")
INCLUDE = re.compile(r"^<!-- (include|help): (\S+)(?: (as|section) (.+?))? -->$", re.M)
GENERATED = re.compile(r"<!-- generated.*?<!-- end of generated -->", re.S)


def summary():
    """Returns the pages of the book by part: {part: [path below docs/]}."""
    parts, part = {}, ""
    for line in (DOCS / "SUMMARY.md").read_text().splitlines():
        if line.startswith("# "):
            part = line[2:].strip()
        for page in re.findall(r"\]\(([^)]+\.md)\)", line):
            parts.setdefault(part, []).append(page)
    return parts


def outside_code(text, change):
    """Applies `change` to all text that is not code."""
    parts, end = [], 0
    for code in FENCE.finditer(text):
        parts += [change(text[end:code.start()]), code[0]]
        end = code.end()
    return "".join([*parts, change(text[end:])])


def slug(heading):
    """Returns the anchor of a heading, as GitHub and mdbook generate it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "").strip().lower()
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", text))


def anchors(path):
    text = re.sub(r"^ *(```|~~~).*?^ *\1[^\n]*$", "", path.read_text(), flags=re.S | re.M)
    seen, found = {}, set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#{1,6} +(.*?)(?: #+)?$", text, re.M):
        name = slug(heading)
        number = seen.get(name, 0)
        seen[name] = number + 1
        found.add(f"{name}-{number}" if number else name)
    return found


def include(match):
    """Returns the text that replaces a comment `<!-- include: FILE ... -->` or `<!-- help: PROGRAM -->` of a page."""
    kind, file, how, what = match.groups()
    path = (ROOT / file).resolve()
    if not path.is_relative_to(ROOT):
        raise SystemExit(f"book: {file} is outside of this tree")
    if kind == "help":
        return command_help(path) if path.exists() else f"({file} is not built.)"
    text = path.read_text()
    if how == "as":
        return f"```{what}\n{text.rstrip()}\n```"
    section = re.search(rf"^## {re.escape(what)}\n(.*?)(?=^## |\Z)", text, re.S | re.M)[1]
    return re.sub(r"^##(#+ )", r"#\1", section, flags=re.M)


def command_help(program, words=()):
    """Returns the help of a command and of its subcommands, each with a heading."""
    text = subprocess.run([program, *words, "--help"], capture_output=True, text=True, check=True).stdout
    pages = [f"{'##' if len(words) < 2 else '###'} `{' '.join([program.name, *words])}`\n\n```text\n{text.rstrip()}\n```\n"]
    below = re.search(r"^Commands:\n(.*?)(?=^\S|\Z)", text, re.S | re.M)
    for name in re.findall(r"^  ([a-z][\w-]*)", below[1] if below else "", re.M):
        if name != "help":
            pages.append(command_help(program, (*words, name)))
    return "\n".join(pages)


def links():
    if len(sys.argv) > 2 and sys.argv[2] == "supports":
        return 0
    _, book = json.load(sys.stdin)
    pages = {page for part in summary().values() for page in part}

    def chapter(item):
        body = item.get("Chapter") if isinstance(item, dict) else None
        if not body:
            return
        if body.get("path"):
            folder = (DOCS / body["path"]).parent

            def target(match):
                text, link = match.groups()
                if re.match(r"[a-z]+:|#", link):
                    return match[0]
                name, _, anchor = link.partition("#")
                file = Path(os.path.normpath(folder / name))
                below = os.path.relpath(file, DOCS)
                if below in pages or (file.suffix != ".md" and not below.startswith("..") and file.is_file()):
                    return match[0]
                kind = "tree" if file.is_dir() else "blob"
                anchor = f"#{anchor}" if anchor else ""
                return f"{text}({REPOSITORY}/{kind}/main/{file.relative_to(ROOT)}{anchor})"

            body["content"] = INCLUDE.sub(include, body["content"])
            body["content"] = outside_code(body["content"], lambda text: LINK.sub(target, text))
        for item in body.get("sub_items", []):
            chapter(item)

    for item in book.get("items", book.get("sections", [])):
        chapter(item)
    json.dump(book, sys.stdout)
    return 0


def pages():
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT,
                           capture_output=True, text=True, check=True).stdout.split()
    bad, known = [], {}
    for name in files:
        path = ROOT / name
        if not path.exists():
            continue
        found = []
        outside_code(path.read_text(), lambda text: found.extend(LINK.findall(text)) or text)
        for _, link in found:
            if re.match(r"[a-z]+:", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            to = Path(os.path.normpath(path.parent / file)) if file else path
            if not to.exists():
                bad.append(f"{name}: {link}: no such file")
            elif anchor and to.suffix == ".md":
                if to not in known:
                    known[to] = anchors(to)
                if anchor not in known[to]:
                    bad.append(f"{name}: {link}: no such heading")
    notebook = (DOCS / "notebook/README.md").read_text()
    listed = {page for part in summary().values() for page in part} | set(re.findall(r"\]\(\.\./([^)]+\.md)\)", notebook))
    for page in sorted(DOCS.rglob("*.md")):
        below = str(page.relative_to(DOCS))
        if below not in listed and below != "SUMMARY.md" and not below.startswith("notebook/"):
            bad.append(f"docs/{below}: in neither docs/SUMMARY.md nor docs/notebook/README.md")
    return report(bad, f"{len(files)} pages, every link and anchor of them exists")


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.ids = [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.update(values[key] for key in ("id", "name") if values.get(key))
        self.links += [values[key] for key in ("href", "src") if values.get(key)]


def html_links(folder):
    found = {}
    for path in Path(folder).rglob("*.html"):
        found[path.resolve()] = page = Page()
        page.feed(path.read_text())
    bad = []
    for path, page in found.items():
        if path.name in ("404.html", "toc.html", "print.html"):
            continue
        for link in page.links:
            if re.match(r"[a-z]+:|//", link):
                continue
            file, _, anchor = unquote(link).partition("#")
            to = (path.parent / file).resolve() if file else path
            if not to.exists():
                bad.append(f"{path.name}: {link}: no such file")
            elif anchor and to in found and anchor not in found[to].ids:
                bad.append(f"{path.name}: {link}: no such anchor")
    return report(bad, f"the book: {len(found)} pages, every link and anchor of them exists")


def words():
    def size(path):
        return len(GENERATED.sub("", path.read_text()).split())

    counts, others = {"README.md": size(ROOT / "README.md")}, dict.fromkeys(OTHERS, 0)
    for part, names in summary().items():
        for name in names:
            if part in OTHERS:
                others[part] += size(DOCS / name)
            elif not name.startswith("decisions/"):
                counts[f"docs/{name}"] = size(DOCS / name)
    total = sum(counts.values())
    if "--list" in sys.argv:
        for name, count in sorted(counts.items(), key=lambda item: -item[1]):
            print(f"{count:7,} {name}")
    bad = [f"the product documentation has {total:,} words, permitted are {LIMIT:,}"] if total > LIMIT else []
    rest = "; ".join(f"{part}: {count:,}" for part, count in others.items())
    return report(bad, f"{total:,} words of product documentation, at most {LIMIT:,} ({rest})")


def report(bad, good):
    for line in bad:
        print(f"book: {line}", file=sys.stderr)
    if not bad:
        print(f"book: {good}")
    return 1 if bad else 0


if __name__ == "__main__":
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    if command == "html" and len(sys.argv) == 3:
        sys.exit(html_links(sys.argv[2]))
    commands = {"links": links, "pages": pages, "words": words}
    if command not in commands:
        sys.exit(__doc__)
    sys.exit(commands[command]())
