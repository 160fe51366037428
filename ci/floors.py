#!/usr/bin/env python3
"""Checks from `cargo metadata` that imports go strictly downward, as docs/ARCHITECTURE.md draws the floors.

Normal and build dependencies between workspace crates must lead to a lower floor. Some things must not be reached at
all, not even through others: tokio from the data path, engine and port from control. Dev-dependencies may look anywhere
in the workspace, but the data path's tests do not use tokio either.
"""

import json
import subprocess
import sys

FLOORS = {
    "packet": 0, "sync": 0,
    "model": 1, "lookup": 1, "conn": 1, "port": 1, "xdp": 1,
    "switch": 2, "router": 2, "balancer": 2,
    "engine": 3, "offload": 3, "openflow": 3, "ovsdb": 3, "netlink": 3,
    "control": 4, "fleet": 4,
    "dataplane": 5,
    "cli": 6, "ovs": 6,
    "bench": 7, "demo": 7,
    "daemon": 8, "testbed": 8,
}

# Crates that packets pass through: no asynchronous runtime, not even in their tests.
DATA_PATH = {"packet", "sync", "lookup", "conn", "port", "xdp", "switch", "router", "balancer", "engine", "offload"}

# crate -> what it must never reach, directly or through others, and why.
UNREACHABLE = {name: {"tokio": "the data path never sees tokio"} for name in DATA_PATH}
UNREACHABLE["control"] = {
    "engine": "control speaks to the data path through its own trait",
    "port": "control speaks to the data path through its own trait",
}


def edges(metadata):
    """The resolved graph: package id -> list of (package id, set of kinds), kind None being a normal dependency."""
    graph = {}
    for node in metadata["resolve"]["nodes"]:
        graph[node["id"]] = [
            (dep["pkg"], {kind["kind"] for kind in dep["dep_kinds"]}) for dep in node["deps"]
        ]
    return graph


def reachable(start, graph):
    """Every package that `start` is built from (normal dependencies only), with one path to each."""
    paths, todo = {start: [start]}, [start]
    while todo:
        here = todo.pop()
        for there, kinds in graph.get(here, []):
            if None in kinds and there not in paths:
                paths[there] = paths[here] + [there]
                todo.append(there)
    del paths[start]
    return paths


def violations(metadata):
    """One sentence per import that breaks a rule."""
    names = {package["id"]: package["name"] for package in metadata["packages"]}
    members = set(metadata["workspace_members"])
    graph = edges(metadata)
    found = []
    for member in sorted(members, key=names.get):
        name = names[member]
        if name not in FLOORS:
            found.append(f"{name}: stands on no floor; add it to FLOORS in ci/floors.py and to docs/ARCHITECTURE.md")
            continue
        for there, kinds in graph.get(member, []):
            target = names[there]
            if there in members and kinds & {None, "build"} and target in FLOORS:
                if FLOORS[target] >= FLOORS[name]:
                    way = "sideways" if FLOORS[target] == FLOORS[name] else "upward"
                    found.append(f"{name} (floor {FLOORS[name]}) imports {target} (floor {FLOORS[target]}): {way}")
            if name in DATA_PATH and target == "tokio" and "dev" in kinds:
                found.append(f"{name}: its tests use tokio, which the data path never sees")
        paths = reachable(member, graph)
        for there, path in paths.items():
            why = UNREACHABLE.get(name, {}).get(names[there])
            if why:
                found.append(f"{' -> '.join(names[step] for step in path)}: {why}")
    return found


def main():
    output = subprocess.run(
        ["cargo", "metadata", "--format-version", "1"], check=True, stdout=subprocess.PIPE
    ).stdout
    metadata = json.loads(output)
    found = violations(metadata)
    for sentence in found:
        print(f"floors: {sentence}", file=sys.stderr)
    if not found:
        print(f"floors: {len(metadata['workspace_members'])} crates, all imports go downward")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
