"""Splits the sources of RFCs into numbered sentences, for compliance.py."""

import hashlib
import re
from typing import NamedTuple

KEYWORD = re.compile(r"\b(MUST|SHALL|REQUIRED|SHOULD|RECOMMENDED)\b")
HEADING = re.compile(r"^(#+) +(.*?)\s*$")
# The end of a sentence: not after abbreviations, and only if another sentence begins.
END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<=[.!?])[\"')*_]{0,2} +(?=[A-Z\"(`*_{\[])")
ITEM = re.compile(r"^ *(?:[*+-]|\d+\.|:) +")


class Sentence(NamedTuple):
    """A sentence with a keyword of RFC 2119. `number` counts them in a section, from 1."""

    section: str
    number: int
    level: str
    text: str

    @property
    def digest(self):
        """Returns a checksum of the words. References and markup differ between the formats of an RFC."""
        text = re.sub(r"\{\{.*?\}\}|\[[A-Z0-9-]+\]|[^A-Za-z0-9 ]", "", self.text)
        return hashlib.sha256(" ".join(text.lower().split()).encode()).hexdigest()[:8]


def sections(source):
    """Yields (number, title, lines) of each numbered section of an RFC in the Markdown of kramdown-rfc."""
    body = source.split("--- middle", 1)[1].split("\n--- back", 1)[0]
    counts, number, title, lines, fence = [0] * 6, "", "", [], ""
    for line in body.splitlines():
        mark = re.match(r" *(~~~|```)", line)
        if mark and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        heading = not fence and HEADING.match(line)
        if heading:
            if number:
                yield number, title, lines
            depth = len(heading[1])
            counts[depth - 1:] = [counts[depth - 1] + 1, *[0] * (6 - depth)]
            number = ".".join(map(str, counts[:depth]))
            title, lines = re.sub(r" *\{[#:].*", "", heading[2]), []
        else:
            lines.append(line)
    yield number, title, lines


def paragraphs(lines):
    """Yields the paragraphs and list items of a section, each as one line. Leaves out figures and tables."""
    part, fence = [], ""
    for line in [*lines, ""]:
        mark = re.match(r" *(~~~|```)", line)
        if mark and fence in ("", mark[1]):
            fence, line = "" if fence else mark[1], ""
        elif fence:
            continue
        if line.startswith(("|", "{:", "<!--", "{::")) or not line.strip() or ITEM.match(line):
            if part:
                yield " ".join(" ".join(part).split())
            part = []
        if not line.startswith(("|", "{:", "<!--", "{::")):
            part += [ITEM.sub("", line)] if line.strip() else []


def sentences(source):
    """Returns all sentences with a keyword."""
    found = []
    for section, _, lines in sections(source):
        number = 0
        for paragraph in paragraphs(lines):
            for text in END.split(paragraph):
                words = KEYWORD.findall(text)
                if not words or "key words" in text:
                    continue
                number += 1
                must = any(word in ("MUST", "SHALL", "REQUIRED") for word in words)
                found.append(Sentence(section, number, "MUST" if must else "SHOULD", text))
    return found
