"""Writes a project for duvet from the citations: the report has the text of each sentence."""

import shutil

import compliance_text

KIND = {"code": "implementation", "test": "test"}
CONFIG = """'$schema' = "https://awslabs.github.io/duvet/config/v0.4.0.json"

[[source]]
pattern = "tree/**/*.rs"

[report.html]
enabled = true
path = "report.html"

[report.json]
enabled = true
path = "report.json"

[report.snapshot]
enabled = true
path = "snapshot.txt"

"""


def specification(rfc, source):
    """Returns the text of an RFC as duvet reads it: sections with their numbers as anchors."""
    parts = [f"# RFC {rfc}\n"]
    for number, title, lines in compliance_text.sections(source):
        depth = number.count(".") + 2
        parts.append(f"{'#' * min(depth, 6)} {number}. {title} {{#section-{number}}}\n")
        parts += [f"{paragraph}\n" for paragraph in compliance_text.paragraphs(lines)]
    return "\n".join(parts)


def note(place, sentence, table, reason):
    quote = sentence.replace("'''", "'")
    return (f"[[{table}]]\ntarget = \"{place}\"\nquote = '''\n{quote}\n'''\n"
            f"reason = '''\n{reason}\n'''\n\n")


def write(root, known, state, sources):
    """Writes out/compliance: specifications, copies of the cited files with quotes, and exceptions."""
    out = root / "out/compliance"
    shutil.rmtree(out, ignore_errors=True)
    lines = {}
    for rfc, source in sources.items():
        (out / "specs").mkdir(parents=True, exist_ok=True)
        (out / f"specs/rfc{rfc}.md").write_text(specification(rfc, source))
        quotes = {(s.section, s.number): s for s in compliance_text.sentences(source)}
        notes = []
        for place, (_, digest, _) in known[rfc].items():
            if place not in quotes or quotes[place].digest != digest:
                raise SystemExit(f"compliance: RFC {rfc} s.{place[0]} #{place[1]} differs in this source")
            target, text = f"specs/rfc{rfc}.md#section-{place[0]}", quotes[place].text
            for kind, where in state[rfc][place].items():
                for path, at in where:
                    if kind in KIND and path:
                        at = at if isinstance(at, int) else line_of(root / path, at["item"])
                        lines.setdefault(path, []).append((at, target, KIND[kind], text))
                    elif kind in ("exception", "declined"):
                        notes.append(note(target, text, "exception", at["reason"]))
                    elif kind == "todo":
                        notes.append(note(target, text, "todo", at["reason"]))
                    elif kind in ("dependency", "followed"):
                        notes.append(note(target, text, "exception", f"{kind}: {at['reason']}"))
        (out / ".duvet/exceptions").mkdir(parents=True, exist_ok=True)
        (out / f".duvet/exceptions/rfc{rfc}.toml").write_text("".join(notes))
    for path, found in lines.items():
        copy(root, out, path, sorted(found))
    specs = "".join(f'[[specification]]\nsource = "specs/rfc{rfc}.md"\nformat = "markdown"\n\n' for rfc in sources)
    (out / ".duvet/config.toml").write_text(CONFIG + specs)


def line_of(path, item):
    """Returns the line of the first occurrence of a text in a file, from 1."""
    text = path.read_text()
    return text.count("\n", 0, text.index(item)) + 1


def copy(root, out, path, found):
    """Copies a file, with duvet's annotations after each line with a citation."""
    source = (root / path).read_text().splitlines()
    result = []
    for at, line in enumerate(source, 1):
        result.append(line)
        for _, target, kind, text in (f for f in found if f[0] == at):
            result += [f"//= {target}", f"//= type={kind}", f"//# {text}"]
    (out / "tree" / path).parent.mkdir(parents=True, exist_ok=True)
    (out / "tree" / path).write_text("\n".join(result) + "\n")
