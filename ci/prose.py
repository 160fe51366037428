#!/usr/bin/env python3
"""Checks the language of comments and pages by the rules of CONTRIBUTING.md ("Language").

A comment of Rust or C is a block of lines that begin with `///`, `//!` or `//`; a page is a Markdown file. Each rule finds
places in them. `ci/prose.txt` lists how many places each file has that is older than this check. A file may have fewer,
never more, and a file that is not in the list may have none. `ci/prose.py --freeze` writes the list anew, and refuses to
let a number grow; `ci/prose.py --show [FILE...]` prints the places.
"""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FROZEN = Path(__file__).resolve().parent / "prose.txt"
COLUMNS = 120

# Words that hide the subject of a sentence, in comments and pages alike.
WORDS = re.compile(r"\b(somebody|nobody|whoever|whomever|whom|anew|in hand|so many)\b", re.IGNORECASE)
# First words of a doc comment that refer to something outside it.
FIRST = re.compile(r"^(Those|Their|Theirs|They|It|Its|Of|Who|Whom|Whose|What|Whatever|As above|And|But|So)\b")
# "The same" that does not say as what.
SAME = re.compile(r"^The same(?! [a-z]+ as)(?![^.]*\[`)")
# Pages that are written by a program, and others' words.
GENERATED = ("docs/benchmarks", "docs/switch-matrix.md", "LICENSE")
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
        if fenced:
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


def read_frozen(text):
    """The numbers of `ci/prose.txt`."""
    lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return {name: int(count) for count, name in lines}


def grown(found, frozen):
    """Files with more places than they may have."""
    return sorted(name for name, hits in found.items() if len(hits) > frozen.get(name, 0))


def main(argv):
    found = places()
    if "--show" in argv:
        wanted = [name for name in argv if not name.startswith("--")]
        for name, hits in found.items():
            if not wanted or any(name.startswith(prefix) for prefix in wanted):
                print("\n".join(f"{name}:{number}: {why}" for number, why in hits))
        return 0
    frozen = read_frozen(FROZEN.read_text()) if FROZEN.exists() else None
    more = grown(found, frozen) if frozen is not None else []
    for name in more:
        print(f"prose: {name}: {len(found[name])} places, {frozen.get(name, 0)} allowed; "
              f"see `ci/prose.py --show {name}`", file=sys.stderr)
    if more:
        return 1
    if "--freeze" in argv:
        head = "# Places that are older than ci/prose.py, for each file. A number only falls.\n"
        FROZEN.write_text(head + "".join(f"{len(hits)} {name}\n" for name, hits in sorted(found.items())))
    kinds = Counter(re.sub(r"\d+ columns", "long lines", why) for hits in found.values() for _, why in hits)
    print(f"prose: {sum(map(len, found.values()))} old places left in {len(found)} files, none new")
    for why, count in kinds.most_common(3 if "--freeze" in argv else 0):
        print(f"    {count} {why}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
