#!/usr/bin/env python3
"""Counts markers of bad style (docs/style.md) in comments, pages and messages.

A crate may have 10 markers in 1,000 comment lines, a page 15 in 10,000 words, and messages (help
texts, errors, logs, reason phrases) none. scripts/prose-baseline.toml has the permitted counts of
crates and pages that exceed these limits today. A count may only fall.

  prose.py                        check; exit status 1 if a count rose
  prose.py --update               lower the baseline to the counts of today
  prose.py --list PATH...         print each marker with its line
  prose.py --sample N --kind docs [--seed S] [PATH...]   print random texts for a reader
"""

import argparse
import math
import random
import re
import signal
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASELINE = ROOT / "scripts/prose-baseline.toml"
KINDS = ("comments", "pages", "messages")
# Maximum number of markers for each comment line, for each word of a page, and for each message.
LIMITS = {"comments": 10 / 1000, "pages": 15 / 10_000, "messages": 0}

# The beginning of a sentence.
START = r"(?<![^.;:|*\n-]\s)\b"
BE = r"(?:is|are|was|were|be|been)"
VERB = r"(?:is|are|was|were|has|have|does|do|would|may|can|cannot|takes|needs|comes|had)"
# Name of each marker, and its pattern. A space in a pattern stands for any white space. Case
# matters.
MARKERS = {
    "None:": r"\b[Nn]one: ",
    "False:": r"\b(?:[Ff]alse|True): ",
    "is none": rf"\b(?:{BE}|there's) none\b|\bOne that (?:is|was)\b",
    "so many": r"\b[Ss]o (?:many|much|long|often|late|early)\b(?! (?:\w+ )?(?:as|that)\b)",
    "told": rf"\b{BE} (?:told|said|asked|looked at|let in|taken in|given up|heeded)\b|\b(?:tell|say|know)s? of\b|\btold of\b",
    "any more": r"\b(?:any more\b(?! than| \w+s\b)|anymore\b)",
    "in vain": r"\bin vain\b",
    "beside": r"\b[Bb]eside\b",
    "alone": r"\balone\b",
    "nobody": r"\b(?:[Nn]obody|[Ww]hoever|[Ww]hom|[Ee]verybody|[Ss]omebody|[Aa]nybody)\b",
    "Who": rf"{START}Who\b(?![^.]*\?)|, who (?:is|has|was|does)\b",
    "What": rf"{START}What\b(?! if\b)(?![^.]*\?)[^.]*\b(?:is|are|was|were|has|have|does|do|comes|goes|may|can)\b",
    "Of": rf"{START}Of (?:which|what|those|these|it|them|each|a|an|the|all|others?|one|several|two)\b",
    "To be": r"(?:\b(?:is|are|was|were)|\bTo) (?:not )?to be\b|^To be [a-z]+ed\b",
    ", for": rf"[a-z`], for (?:it|they|he|there|nothing|nobody|what|neither) |[a-z`], for (?:a|an|the|this|that|its|their|no|all|each)(?: [\w-]+){{1,3}} {VERB}\b",
    "brought": r"\b(?:brought|brings? (?:nothing|it about))\b",
    "goes by": r"\bgo(?:es)? by\b|\bgoes on\b(?! to\b)",
    "how-manieth": r"\bhow-?manieth\b|\bhow it (?:came|comes)\b",
    "be it": r"\bbe it (?:that|by|in|as)\b|\bas it were\b|\bas is right\b|\bas ever\b",
    "at the most": r"\bat the (?:most|least)\b",
    "mend": r"\b[Mm]end(?:s|ed|ing)?\b",
    "anew": r"\banew\b|\b(?:of|from) before\b(?! (?:a|an|the|that|its|it)\b)|\bmade again\b",
    "does not do": r"\bdo(?:es)? not do\b|\bhas to do without\b",
    "for ever": r"\bfor ever\b",
    "thereby": r"\b(?:thereof|whereof|therein|wherein|thereupon|hereby)\b",
    "by chance": r"\bby chance\b",
    "without a word": r"\bwithout a word\b|\ba word about\b|\bno word\b",
    "come to nothing": r"\bcomes? to (?:nothing|that)\b",
    "far": r"\bas (?:far|long) as (?:it|they) (?:goes|go|is|are)\b|\bto the letter\b",
    "elliptic": rf"{START}(?:As|Not|But|Nor|With|Without|Else|So|Such)\b[^.;:,]{{0,22}}[.]",
}
PATTERNS = {name: re.compile(text.replace(" ", r"\s+"), re.M) for name, text in MARKERS.items()}

RUST = re.compile(
    r'(?P<comment>//[^\n]*|/\*.*?\*/)|(?<!\w)b?r(?P<h>#*)"(?P<raw>.*?)"(?P=h)'
    r"|(?<!\w)(?:b|c)?\"(?P<string>(?:\\.|[^\"\\])*)\"|'(?:\\(?:.|u\{\w+\})|[^\\'\n])'",
    re.S,
)
C = re.compile(r"(?P<comment>//[^\n]*|/\*.*?\*/)|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^\\'\n])'|`[^`]*`", re.S)
HASH = re.compile(
    r"(?P<comment>(?<![^\s])#(?![!:])[^\n]*|(?<=\n)\s*(?:'''.*?'''|\"\"\".*?\"\"\")|\A\"\"\".*?\"\"\")"
    r"|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'",
    re.S,
)
LANGUAGES = {".rs": RUST, ".c": C, ".h": C, ".go": C, ".py": HASH, ".sh": HASH, ".toml": HASH}
TOML_FOLDERS = ("docs/", "packaging/")
# docs/style.md and the files of this check quote the markers. The other files are written by
# programs.
SKIP = re.compile(r"docs/style\.md|scripts/(test_)?prose\.py|lab/results/.*|.*Cargo\.toml|.*/(?:generated|vendor)/.*")
TESTS = re.compile(r".*(?:^|/)(?:tests?|benches|examples|fuzz)/.*|.*tests?\.rs")
CLAP = re.compile(r"#\[derive\([^\]]*\b(?:Parser|Args|Subcommand|ValueEnum)\b.*?^\}", re.S | re.M)


class Text(NamedTuple):
    kind: str
    unit: str
    path: str
    line: int
    text: str
    size: int


def blank(match):
    """Returns the line breaks of removed text, so that the numbers of later lines do not change."""
    return "\n" * match[0].count("\n")


def prose(text):
    """Removes code and addresses from Markdown. The number of lines does not change."""
    text = re.sub(r"^ *(```|~~~).*?^ *\1[^\n]*$", blank, text, flags=re.S | re.M)
    text = re.sub(r"<!--.*?-->", blank, text, flags=re.S)
    text = re.sub(r"(?:(?<=\n\n)|\A)(?: {4,}|\t)[^\n]*(?:\n(?: {4,}|\t)[^\n]*|\n(?=\n* {4}))*", blank, text)
    text = re.sub(r"`[^`]*`", lambda code: "`x`" + blank(code), text)
    return re.sub(r"\]\([^)]*\)|https?://\S+", "]", text)


def unit_of(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("crates", "lab") else parts[0]


def words(text):
    return len(re.findall(r"[A-Za-z][\w'-]*", text))


def is_message(text):
    """True for a literal with three words and the shape of a sentence, not of a path or a program."""
    plain = re.sub(r"\{[^}]*\}|`[^`]*`", "x", text)
    letters = sum(char.isalpha() or char == " " for char in plain)
    return words(plain) >= 3 and letters >= 0.75 * len(plain) and not re.search(r"[;{}]\s*$|^https?:", text)


def strip_comment(text):
    text = re.sub(r"^\s*(?:///?|//!|/\*+!?|#+|\"\"\"|''')[!<]? ?", "", text)
    return re.sub(r"\s*(?:\*+/|\"\"\"|''')$", "", text)


def comment_texts(found):
    """Joins comments on adjacent lines, because a sentence can extend over several lines."""
    block, start, last = [], 0, -1
    for line, text in found:
        if block and line != last + 1:
            yield start, "\n".join(block)
            block = []
        if not block:
            start = line
        lines = text.split("\n")
        block += [strip_comment(lines[0])] + [re.sub(r"^\s*\*(?!/) ?", "", rest).replace("*/", "") for rest in lines[1:]]
        last = line + len(lines) - 1
    if block:
        yield start, "\n".join(block)


def code_texts(path, source):
    pattern = LANGUAGES[Path(path).suffix]
    found, position, line = [], 0, 1
    spans = [(m.start(), m.end()) for m in CLAP.finditer(source)] if path.endswith(".rs") else []
    tested = bool(TESTS.fullmatch(path))
    tests_from = source.find("#[cfg(test)]\nmod ") if source.rstrip().endswith("}") else -1
    unit, help_texts = unit_of(path), []
    for match in pattern.finditer(source):
        line += source.count("\n", position, match.start())
        position = match.start()
        if match["comment"] is not None:
            own = "SPDX" not in match[0] and "clang-format" not in match[0]
            if match[0].startswith("///") and not tested and any(a <= position < b for a, b in spans):
                help_texts.append((line, match[0]))
            elif own:
                found.append((line, match[0]))
        elif path.endswith(".rs") and not tested and not 0 <= tests_from < position:
            text = match["string"] if match["string"] is not None else match["raw"]
            text = re.sub(r"\\n|\\(?=\n)", " ", text or "")
            if is_message(text):
                yield Text("messages", unit, path, line, text, 1)
    for line, text in comment_texts(help_texts):
        yield Text("messages", unit, path, line, prose(text), 1)
    for line, text in comment_texts(found):
        size = sum(1 for row in text.split("\n") if re.search(r"\w", row))
        yield Text("comments", unit, path, line, prose(text), size)


def page_texts(path, source):
    """Yields the paragraphs, list items and table rows of a page."""
    clean, line = prose(source), 1
    for part in re.split(r"(\n(?=\s*\n|\s*[*-] |\s*\d+\. |\|))", clean):
        first = line + len(part) - len(part.lstrip("\n"))
        if words(part):
            yield Text("pages", path, path, first, part.strip("\n"), words(part))
        line += part.count("\n")


def texts(paths):
    for path in paths:
        suffix = Path(path).suffix
        if SKIP.fullmatch(path) or suffix == ".toml" and not path.startswith(TOML_FOLDERS):
            continue
        source = (ROOT / path).read_text(encoding="utf-8", errors="replace")
        if suffix == ".md":
            yield from page_texts(path, source)
        elif suffix in LANGUAGES:
            yield from code_texts(path, source)


def tracked(paths=()):
    """Returns the paths of all files that Git tracks or would add, or only those below `paths`."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for path in sorted(set(listed.split("\n"))) if path and (ROOT / path).is_file()]


def markers(text):
    """Yields the name and the position of each marker in a text."""
    for name, pattern in PATTERNS.items():
        for match in pattern.finditer(text):
            yield name, match.start()


def count(all_texts):
    counts = {kind: defaultdict(int) for kind in KINDS}
    sizes = {kind: defaultdict(int) for kind in KINDS}
    for text in all_texts:
        counts[text.kind][text.unit] += sum(1 for _ in markers(text.text))
        sizes[text.kind][text.unit] += text.size
    return counts, sizes


def permitted(kind, size):
    """Returns the permitted number of markers. A short page or a small crate may have one, a message none."""
    return max(1, math.floor(LIMITS[kind] * size)) if LIMITS[kind] else 0


def exceeding(counts, sizes, baseline):
    """Yields the units that have more markers than the limit and the baseline permit."""
    for kind in KINDS:
        for unit, number in sorted(counts[kind].items()):
            most = max(permitted(kind, sizes[kind][unit]), baseline.get(kind, {}).get(unit, 0))
            if number > most:
                yield kind, unit, number, most


def lowered(counts, sizes, baseline):
    """Returns the next baseline: no number rises, and units within the limits have no entry."""
    new = {kind: {} for kind in KINDS}
    for kind in KINDS:
        for unit, number in sorted(counts[kind].items()):
            old = number if baseline is None else baseline.get(kind, {}).get(unit)
            if old is not None and number > permitted(kind, sizes[kind][unit]):
                new[kind][unit] = min(old, number)
    return new


def written(baseline):
    rows = ["# Markers that scripts/prose.py permits above its limits. `scripts/prose.py --update` lowers them."]
    for kind in KINDS:
        rows += ["", f"[{kind}]"] + [f'"{unit}" = {number}' for unit, number in baseline[kind].items()]
    return "\n".join(rows) + "\n"


def context(rows, at):
    """Returns what a reader of a page also sees at a text: the heading, and the header of a table."""
    heading = next((row for row in reversed(rows[:at]) if re.match(r"#{1,6} ", row)), None)
    first = at
    while first > 0 and rows[at].startswith("|") and rows[first - 1].startswith("|"):
        first -= 1
    return ([heading] if heading else []) + ([rows[first]] if first < at else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files or folders for --list and --sample (default: all)")
    parser.add_argument("--update", action="store_true", help="lower the baseline")
    parser.add_argument("--list", action="store_true", help="print each marker with its line")
    parser.add_argument("--sample", type=int, metavar="N", help="print N random texts")
    parser.add_argument("--seed", type=int, help="seed of the sample (default: random, printed)")
    parser.add_argument("--kind", choices=["docs", "comments", "messages"], default="docs")
    options = parser.parse_args()
    found = list(texts(tracked(options.paths)))
    if options.list:
        for text in found:
            for name, at in markers(text.text):
                excerpt = " ".join(text.text[max(0, at - 30) : at + 60].split())
                print(f"{text.path}:{text.line + text.text.count(chr(10), 0, at)}: [{name}] {excerpt}")
        return 0
    if options.sample:
        kind = "pages" if options.kind == "docs" else options.kind
        long_enough = [text for text in found if text.kind == kind and (kind == "messages" or words(text.text) >= 8)]
        seed = options.seed if options.seed is not None else random.randrange(10**6)
        print(f"seed {seed}, {len(long_enough)} texts")
        for number, text in enumerate(random.Random(seed).sample(long_enough, min(options.sample, len(long_enough))), 1):
            original = (ROOT / text.path).read_text().split("\n")
            rows = original[text.line - 1 : text.line + text.text.count("\n")]
            rows = context(original, text.line - 1) + rows if kind == "pages" else rows
            print(f"\n--- {number}. {text.path}:{text.line}\n" + "\n".join(rows))
        return 0
    if options.paths:
        parser.error("paths need --list or --sample")
    counts, sizes = count(found)
    baseline = tomllib.loads(BASELINE.read_text()) if BASELINE.exists() else None
    if options.update:
        BASELINE.write_text(written(lowered(counts, sizes, baseline)))
        baseline = tomllib.loads(BASELINE.read_text())
    failed = list(exceeding(counts, sizes, baseline or {}))
    for kind, unit, number, most in failed:
        print(f"prose: {kind} of {unit}: {number} markers, permitted are {most}: see docs/style.md and run "
              f"'scripts/prose.py --list {unit}'", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
