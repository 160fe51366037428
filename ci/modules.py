#!/usr/bin/env python3
"""Checks that the modules of each crate form no circles: files import downward, as crates do (docs/ARCHITECTURE.md).

The graph comes from the text: `use` trees and inline paths that begin with `crate`, `self`, `super` or a child module's
name. Re-exports are followed to the module that defines the item. A parent that re-exports a child, and everything under
`#[cfg(test)]`, does not count.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_TEST_ITEM = re.compile(
    r"#\[cfg\([^\]]*\btest\b[^\]]*\)\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?(mod \w+\s*\{|mod \w+;|use [^;]*;)")
_MOD = re.compile(r"((?:#\[[^\]]*\]\s*)*)(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;")
_USE = re.compile(r"(pub(?:\([^)]*\))?\s+)?\buse\s+([^;]+);")
_INLINE = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")
_CHILD = re.compile(r"(?<![\w:])(\w+)::(\w+)")


def without_comments(text):
    """The text without comments, and with every string empty."""
    text = re.sub(r"//[^\n]*", "", text)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def without_tests(text):
    """The text without items under `#[cfg(test)]`."""
    for match in reversed(list(_TEST_ITEM.finditer(text))):
        end = match.end()
        if match.group(1).endswith("{"):
            depth = 1
            while end < len(text) and depth:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
        text = text[:match.start()] + text[end:]
    return text


def leaves(tree):
    """The paths of a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        return [re.sub(r"\s+as\s+\w+", "", tree).replace(" ", "").replace("\n", "")]
    head, depth, parts, part = tree[:brace], 0, [], ""
    for char in tree[brace + 1:]:
        if char == "}" and depth == 0:
            break
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            parts.append(part)
            part = ""
        else:
            part += char
    parts.append(part)
    return [(head + leaf).replace(" ", "").replace("\n", "") for part in parts if part.strip() for leaf in leaves(part)]


class Crate:
    """The modules of one crate: a module is the tuple of the names that lead to it."""

    def __init__(self, source):
        self.source, self.files, self.texts = source, {}, {}
        root = next((source / name for name in ("lib.rs", "main.rs") if (source / name).exists()), None)
        if root:
            self._add(root, ())
        self.exports, self.uses = {}, {module: [] for module in self.files}
        for module in self.files:
            self._read(module)

    def _add(self, file, module):
        self.files[module] = file
        text = without_comments(file.read_text())
        self.texts[module] = without_tests(text)
        folder = file.parent if file.name in ("lib.rs", "main.rs", "mod.rs") else file.with_suffix("")
        for match in _MOD.finditer(text):
            if re.search(r"cfg\([^\]]*\btest\b", match.group(1)):
                continue
            name = match.group(2)
            for child in (folder / f"{name}.rs", folder / name / "mod.rs"):
                if child.exists():
                    self._add(child, (*module, name))

    def _absolute(self, module, path):
        """The path from the crate's root, `None` if it leads to another crate."""
        names = path.split("::")
        if names[0] == "crate":
            return tuple(names[1:])
        if names[0] in ("self", "super"):
            here = module
            while names and names[0] in ("self", "super"):
                here = here[:-1] if names[0] == "super" else here
                names = names[1:]
            return here + tuple(names)
        return module + tuple(names) if (*module, names[0]) in self.files else None

    def _read(self, module):
        text = self.texts[module]
        for match in _USE.finditer(text):
            for leaf in leaves(match.group(2)):
                path = self._absolute(module, leaf)
                if path is None:
                    continue
                self.uses[module].append((path, bool(match.group(1))))
                if path and path[-1] != "*":
                    self.exports.setdefault((*module, path[-1]), path)
        body = _USE.sub("", text)
        for match in _INLINE.finditer(body):
            path = self._absolute(module, match.group(1))
            if path is not None:
                self.uses[module].append((path, False))
        for match in _CHILD.finditer(body):
            if (*module, match.group(1)) in self.files:
                self.uses[module].append(((*module, match.group(1), match.group(2)), False))

    def _defining(self, path, depth=0):
        """The module in which the item of this path is defined."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.files:
                onward = self.exports.get(path[:length + 1]) if length < len(path) else None
                if onward and onward != path and depth < 8:
                    return self._defining(onward + path[length + 1:], depth + 1)
                return path[:length]
        return None

    def graph(self):
        """Which modules each module imports from."""
        edges = {module: set() for module in self.files}
        for module, uses in self.uses.items():
            for path, is_public in uses:
                target = self._defining(path)
                is_own_child = is_public and target is not None and target[:len(module)] == module
                if target is not None and target != module and not is_own_child:
                    edges[module].add(target)
        return edges

    def name(self, module):
        """A module's file, from the crate's source folder."""
        return str(self.files[module].relative_to(self.source))


def components(edges):
    """Strongly connected components of more than one node (Tarjan 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(component)

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


def circles(root=ROOT):
    """Each circle: the crate's name and the sorted files."""
    found = []
    for source in sorted((root / "crates").glob("*/src")):
        crate = Crate(source)
        for component in components(crate.graph()):
            found.append((source.parent.name, tuple(sorted(crate.name(module) for module in component))))
    return found


def main():
    sys.setrecursionlimit(10_000)
    found = circles()
    for crate, files in found:
        print(f"modules: {crate}: these files import each other in a circle: {' '.join(files)}; "
              "move what they share into a module below them", file=sys.stderr)
    if not found:
        print("modules: no circles")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
