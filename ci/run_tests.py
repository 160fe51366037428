#!/usr/bin/env python3
"""Runs the workspace's tests, several test programs at a time.

`cargo test` runs one program after the other, and most of ours wait: for a daemon's clock, a peer's timer, a time-out. Programs
stay as they are, each in its package's directory with threads of its own, and as root with a bpffs of its own; what each says comes in one
piece when it ends.
`ci/run_tests.py [ARGUMENT...]`: the arguments are cargo's (`--locked`, `--profile soak`, `--features ...`), those behind `--` the programs'.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: A file system for pinned BPF objects of its own: a daemon looks at all pins there are, those of other programs' daemons included.
_APART = ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
          'mount -t bpf bpf /sys/fs/bpf && exec "$0" "$@"']
#: Seconds after which a program hangs.
_LIMIT_S = 900


@dataclass(frozen=True)
class Program:
    """A test program: where it is, the directory that its tests expect to be in, and what to call it."""

    executable: str
    directory: str
    name: str


@dataclass(frozen=True)
class Outcome:
    """What became of a program."""

    program: Program
    status: int | str
    seconds: float
    said: str


def programs(messages) -> list[Program]:
    """The test programs that cargo tells of, line by line, as JSON (`--message-format=json`). Those that talk to real peers, and wait
    most, are a daemon's: they come first."""
    found = []
    for line in messages:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message["profile"]["test"] and message["executable"]:
            directory = Path(message["manifest_path"]).parent
            found.append(Program(message["executable"], str(directory), f"{directory.name}/{message['target']['name']}"))
    return sorted(found, key=lambda program: (not program.name.startswith("daemon/"), program.name))


@cache
def apart() -> list[str]:
    """What a program is begun by: `_APART`, where that is allowed. Elsewhere daemons cannot pin anything, either."""
    allowed = subprocess.run([*_APART, "true"], capture_output=True).returncode == 0
    return _APART if allowed else []


def run(program: Program, arguments: list[str], limit: float = _LIMIT_S) -> Outcome:
    """Runs one to its end, or for `limit` seconds."""
    begin = time.monotonic()
    environment = os.environ | {"CARGO_MANIFEST_DIR": program.directory}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen([*apart(), program.executable, *arguments], cwd=program.directory, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = f"no end within {limit:.0f} s"
        output.seek(0)
        return Outcome(program, status, time.monotonic() - begin, output.read())


def run_all(all_programs: list[Program], arguments: list[str], at_a_time: int, show=print) -> list[Outcome]:
    """Runs all of them; those that failed."""
    failed = []
    with ThreadPoolExecutor(at_a_time) as pool:
        for done in as_completed([pool.submit(run, program, arguments) for program in all_programs]):
            outcome = done.result()
            show(f"\n--- {outcome.program.name}: {outcome.status or 'ok'}, {outcome.seconds:.1f} s\n{outcome.said.strip()}")
            if outcome.status != 0:
                failed.append(outcome)
    return failed


def main(arguments: list[str]) -> int:
    """Builds, runs, and names what failed last; the exit status."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-a-time", type=int, default=os.cpu_count() or 1, help="programs (%(default)s)")
    own, cargo = parser.parse_known_args(arguments[:cut])
    build = ["cargo", "test", "--workspace", *cargo]
    built = subprocess.run([*build, "--no-run", "--message-format=json-render-diagnostics"], stdout=subprocess.PIPE, text=True)
    if built.returncode:
        return built.returncode
    found = programs(built.stdout.splitlines())
    if not found:
        print("cargo built no test program: see what it said above", file=sys.stderr)
        return 1
    begin = time.monotonic()
    failed = run_all(found, arguments[cut + 1:], own.at_a_time)
    print(f"\n{len(found)} test programs, {len(failed)} failed, {time.monotonic() - begin:.0f} s")
    examples = subprocess.run([*build, "--doc", "--no-fail-fast", *arguments[cut:]]).returncode
    for outcome in failed:
        print(f"FAILED: {outcome.program.name} ({outcome.status}), shown above", file=sys.stderr)
    return 1 if failed else examples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
