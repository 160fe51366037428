#!/usr/bin/env python3
"""Checks the links of the Markdown pages.

Each relative link leads to a file or a folder of the repository, and each `#anchor` leads to a heading of its page. The
identifiers of headings are those that GitHub and mdBook derive from the text of a heading. Each page of docs/ stands in
docs/SUMMARY.md, the contents of the book. Links to other sites, code blocks and inline code are not checked. With names
of files or folders as arguments, only the places in these are printed.
"""

import posixpath
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[1]
# The contents of the book, and the folder of its pages.
SUMMARY, PAGES = "docs/SUMMARY.md", "docs/"

FENCE = re.compile(r"^\s*(`{3,}|~{3,})")
HEADING = re.compile(r"^ {0,3}#{1,6}\s+(.*?)(?:\s+#+)?\s*$")
# Identifiers that a page sets itself, in HTML.
IDENTIFIER = re.compile(r"<[^>]*\b(?:id|name)=\"([^\"]+)\"")
# `[text](target)`, `![text](target "title")` and `[name]: target`.
INLINE = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]^][^\]]*\]:\s+<?([^\s>]+)>?")
SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")


def lines(text):
    """The lines of a page outside code blocks, with their numbers."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        if match := FENCE.match(line):
            mark = match.group(1)
            if fence is None:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence):
                fence = None
        elif fence is None:
            yield number, line


def slug(heading):
    """The identifier of a heading, before numbers make it unique."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>`]*>", "", text)
    return "".join(c for c in text.strip().lower().replace(" ", "-") if c.isalnum() or c in "-_")


def anchors(text):
    """The identifiers of a page. A repeated heading gets `-1`, `-2` and so on."""
    found, count = set(), {}
    for _, line in lines(text):
        found.update(IDENTIFIER.findall(line))
        if match := HEADING.match(line):
            name = slug(match.group(1))
            repeated = count.get(name, 0)
            count[name] = repeated + 1
            found.add(f"{name}-{repeated}" if repeated else name)
    return found


def targets(text):
    """The targets of the links of a page, with the numbers of their lines."""
    for number, line in lines(text):
        line = re.sub(r"(`+)(?:(?!\1).)+\1(?!`)", "``", line)
        for target in INLINE.findall(line) + REFERENCE.findall(line):
            if not SCHEME.match(target):
                yield number, target


def resolved(page, target):
    """The path of the file to which a link of a page leads, from the root of the repository, and its anchor."""
    path, _, anchor = target.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(path))) if path else page
    return path, unquote(anchor)


def places(files, read):
    """All places of all pages: file -> (number, what is wrong). `read` returns the text of a file."""
    folders = {str(parent) for name in files for parent in Path(name).parents}
    pages = {name: read(name) for name in files if name.endswith(".md")}
    identifiers = {name: anchors(text) for name, text in pages.items()}
    found = {}
    if SUMMARY in pages:
        listed = {resolved(SUMMARY, target)[0] for _, target in targets(pages[SUMMARY])}
        for name in sorted(pages.keys() - listed - {SUMMARY}):
            if name.startswith(PAGES):
                found[name] = [(1, f"{SUMMARY} does not list this page")]
    for name, text in pages.items():
        for number, target in targets(text):
            path, anchor = resolved(name, target)
            if path not in files and path not in folders:
                why = f"{target} leads to no file of the repository"
            elif anchor and path in pages and anchor not in identifiers[path]:
                why = f"{target} leads to no heading of {path}"
            else:
                continue
            found.setdefault(name, []).append((number, why))
    return found


def repository(root=ROOT):
    """The names of the files of the repository, also of those that no commit has yet."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {name for name in names if (root / name).is_file()}


def main(argv):
    """Prints the places. Returns 1 if there is any."""
    found = places(repository(), lambda name: (ROOT / name).read_text())
    found = {name: hits for name, hits in found.items() if not argv or name.startswith(tuple(argv))}
    for name, hits in sorted(found.items()):
        print("\n".join(f"{name}:{number}: {why}" for number, why in hits), file=sys.stderr)
    print(f"links: {sum(map(len, found.values()))} places in {len(found)} files")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
