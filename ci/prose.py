#!/usr/bin/env python3
"""Checks the language of comments and pages by the rules of CONTRIBUTING.md ("Language").

A comment of Rust or C is a block of lines that begin with `///`, `//!` or `//`. A page is a Markdown file. Each rule
finds places in comments and pages. No place is allowed. Code, generated pages and quotations are not checked. With names of
files or folders as arguments, only the places in these are printed.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120

# Words that hide the subject of a sentence, in comments and pages alike.
WORDS = re.compile(r"\b(somebody|nobody|whoever|whomever|whom|anew|in hand|so many)\b", re.IGNORECASE)
# First words of a doc comment that refer to something outside it.
FIRST = re.compile(r"^(Those|Their|Theirs|They|It|Its|Of|Who|Whom|Whose|What|Whatever|As above|And|But|So)\b")
# "The same" that does not say as what.
SAME = re.compile(r"^The same(?! [a-z]+ as)(?![^.]*\[`)")
# Pages that are written by a program, and others' words.
GENERATED = ("docs/benchmarks", "docs/switch-matrix.md", "docs/reference/", "LICENSE")
COMMENT = re.compile(r"^\s*(///|//!|//|/\*+|\*)\s?(.*?)(\*/)?\s*$")
DOC = re.compile(r"^\s*//[/!]")


def without_code(line):
    """A line without what stands between backticks, or is a link's target or a table's rule."""
    line = re.sub(r"`[^`]*`", "``", line)
    return re.sub(r"\]\([^)]*\)", "]()", line)


def in_source(text):
    """Places in the comments of a source file: the line's number, and what is wrong with it."""
    found, before, fenced = [], False, False
    for number, line in enumerate(text.splitlines(), 1):
        match = COMMENT.match(line) if "//" in line or "*" in line else None
        if not match:
            before = fenced = False
            continue
        words = match.group(2)
        if words.startswith("```"):
            fenced = not fenced
        elif not fenced:
            plain = without_code(words)
            found += [(number, f'"{hit.group(0)}" names no subject') for hit in WORDS.finditer(plain)]
            if DOC.match(line) and not before:
                if hit := FIRST.match(plain):
                    found.append((number, f'a doc comment begins with "{hit.group(0)}"'))
                elif SAME.match(words):
                    found.append((number, '"The same" does not say as what'))
            if len(line) > COLUMNS:
                found.append((number, f"{len(line)} columns"))
        before = bool(words)
    return found


def in_page(text):
    """Places in a Markdown page."""
    found, fenced = [], False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            continue
        # A line that begins with `>` is a quotation.
        if fenced or line.startswith(">"):
            continue
        found += [(number, f'"{hit.group(0)}" names no subject') for hit in WORDS.finditer(without_code(line))]
        if len(line) > COLUMNS and not line.lstrip().startswith("|") and " " in line.strip():
            found.append((number, f"{len(line)} columns"))
    return found


def places(root=ROOT):
    """All places of all tracked files: file -> places."""
    names = subprocess.run(["git", "-C", str(root), "ls-files"], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = {}
    for name in names.splitlines():
        file = root / name
        if name.startswith(GENERATED) or not file.is_file():
            continue
        if name.endswith((".rs", ".c", ".h")):
            found[name] = in_source(file.read_text())
        elif name.endswith(".md"):
            found[name] = in_page(file.read_text())
    return {name: hits for name, hits in found.items() if hits}


def main(argv):
    """Prints the places. Returns 1 if there is any."""
    found = {name: hits for name, hits in places().items() if not argv or name.startswith(tuple(argv))}
    for name, hits in found.items():
        print("\n".join(f"{name}:{number}: {why}" for number, why in hits), file=sys.stderr)
    print(f"prose: {sum(map(len, found.values()))} places in {len(found)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
