#!/usr/bin/env python3
"""Runs the workspace's tests, several test programs at a time.

`cargo test` runs one program after the other, and most of ours wait: for a daemon's clock, a peer's timer, a time-out. Programs
stay as they are, each in its package's directory with threads of its own, and as root with a bpffs of its own; what each says comes in one
piece when it ends. Tests that are skipped say so in a file for each program (`testbed::skip`); their names come last, with the counts.
`ci/run_tests.py [ARGUMENT...]`: the arguments are cargo's (`--locked`, `--profile soak`, `--features ...`), those behind `--` the programs'.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import totals
from totals import Totals

#: A file system for pinned BPF objects of its own: a daemon looks at all pins there are, those of other programs' daemons included.
_APART = ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
          'mount -t bpf bpf /sys/fs/bpf && exec "$0" "$@"']
#: Seconds after which a program hangs.
_LIMIT_S = 900
#: The environment variable that names the file for skipped tests (`testbed::SKIP_RECORD`).
_SKIPS = "TRIVIUM_SKIP_RECORD"


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
    #: Tests that were skipped by `testbed::skip`, and why.
    skipped: dict[str, str] = field(default_factory=dict)

    def totals(self) -> Totals:
        """The counts of this program's tests. A program that did not end by itself has a failure, whatever its tests said."""
        counts = totals.counted(self.program.name, self.said, 0 if self.status == 0 else 1)
        counts.skip(self.program.name, self.skipped)
        return counts


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
    with tempfile.TemporaryDirectory(prefix="trivium-tests-") as directory, tempfile.TemporaryFile("w+", errors="replace") as output:
        skips = Path(directory) / "skipped"
        environment = os.environ | {"CARGO_MANIFEST_DIR": program.directory, _SKIPS: str(skips)}
        process = subprocess.Popen([*apart(), program.executable, *arguments], cwd=program.directory, env=environment,
                                   stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            end_all(process.pid, f"{_SKIPS}={skips}")
            process.wait()
            status = f"no end within {limit:.0f} s"
        output.seek(0)
        lines = skips.read_text(encoding="utf-8").splitlines() if skips.exists() else []
        skipped = dict(line.split("\t", 1) for line in lines)
        return Outcome(program, status, time.monotonic() - begin, output.read(), skipped)


def end_all(group: int, marker: str) -> None:
    """Kills a program that hangs with all that it has started: its process group, and the processes outside the group (daemons that
    detached themselves) that have inherited `marker` in their environment."""
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    for entry in Path("/proc").iterdir():
        # Processes end, and others' environments may not be read.
        with suppress(OSError):
            if entry.name.isdigit() and marker.encode() in (entry / "environ").read_bytes().split(b"\0"):
                os.kill(int(entry.name), signal.SIGKILL)


def run_all(all_programs: list[Program], arguments: list[str], at_a_time: int, show=print, counts: Totals | None = None) -> list[Outcome]:
    """Runs all of them; those that failed. What their tests were is added to `counts`."""
    failed, counts = [], Totals() if counts is None else counts
    with ThreadPoolExecutor(at_a_time) as pool:
        for done in as_completed([pool.submit(run, program, arguments) for program in all_programs]):
            outcome = done.result()
            show(f"\n--- {outcome.program.name}: {outcome.status or 'ok'}, {outcome.seconds:.1f} s\n{outcome.said.strip()}")
            counts.add(outcome.totals())
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
    begin, counts = time.monotonic(), Totals()
    failed = run_all(found, arguments[cut + 1:], own.at_a_time, counts=counts)
    print(f"\n{len(found)} test programs, {len(failed)} failed, {time.monotonic() - begin:.0f} s", flush=True)
    examples, said = totals.shown([*build, "--doc", "--no-fail-fast", *arguments[cut:]])
    counts.add(totals.counted("examples in documentation", said, examples))
    for outcome in failed:
        print(f"FAILED: {outcome.program.name} ({outcome.status}), shown above", file=sys.stderr)
    totals.record(counts)
    for test, why in counts.skipped:
        print(f"skipped: {test}: {why}")
    print(counts.last_line(), flush=True)
    return 1 if failed else examples


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
