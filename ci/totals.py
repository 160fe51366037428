#!/usr/bin/env python3
"""Counts the tests of a run: how many passed, failed and were skipped, and which were skipped and why.

`ci/totals.py run FILE NAME COMMAND...`: runs a command, shows what the command prints, and adds the command's counts to FILE. The counts
are read from what libtest (`test result: ...`), unittest (`Ran N tests`) and fuzz/run.sh print; a command that prints none is one test.
`ci/totals.py show FILE STATUS`: prints the tests that were skipped by name, then `N passed, N failed, N skipped` as the last line. STATUS
is the exit status of the whole run: a run that failed has at least one failure.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

#: The environment variable that names the file of totals, for programs such as `ci/run_tests.py` that count by themselves.
FILE = "TRIVIUM_TOTALS"

_LIBTEST = re.compile(r"^test result: \S+ (\d+) passed; (\d+) failed;", re.MULTILINE)
_IGNORED = re.compile(r"^test (\S+)(?: - \S+)*(?: \(line \d+\))? \.\.\. ignored(?:, (.*))?$", re.MULTILINE)
_UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
_FUZZ = re.compile(r"^fuzz: (\d+) targets.*, (\d+) failed", re.MULTILINE)


@dataclass
class Totals:
    """Numbers of tests, and the skipped ones as (test, reason)."""

    passed: int = 0
    failed: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: "Totals") -> None:
        """Adds the counts of another part of the run."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def last_line(self) -> str:
        """The line that ends a run."""
        return f"{self.passed} passed, {self.failed} failed, {len(self.skipped)} skipped"

    def skip(self, name: str, skipped: dict[str, str]) -> None:
        """Counts tests as skipped that the program `name` has counted as passed."""
        self.skipped += [(f"{name}: {test}", why) for test, why in skipped.items()]
        self.passed = max(self.passed - len(skipped), 0)


def counted(name: str, text: str, status: int) -> Totals:
    """The counts in what a test program has printed. A program without counts is one test; one that fails without a failed test has one
    failure, its own."""
    totals, found = Totals(), False
    for passed, failed in _LIBTEST.findall(text):
        found = True
        totals.passed += int(passed)
        totals.failed += int(failed)
    totals.skipped += [(f"{name}: {test}", f"ignored: {why or 'no reason given'}") for test, why in _IGNORED.findall(text)]
    for ran, words in _UNITTEST.findall(text):
        found = True
        bad = sum(int(number) for number in re.findall(r"(?:failures|errors|unexpected successes)=(\d+)", words))
        skipped = sum(int(number) for number in re.findall(r"skipped=(\d+)", words))
        totals.passed += int(ran) - bad - skipped
        totals.failed += bad
        totals.skipped += [(f"{name}: a unit test", "skipped by unittest")] * skipped
    for ran, bad in _FUZZ.findall(text):
        found = True
        totals.passed += int(ran) - int(bad)
        totals.failed += int(bad)
    if status and not totals.failed:
        totals.failed = 1
    elif not found and not status:
        totals.passed = 1
    return totals


def record(totals: Totals, path: str | None = None) -> None:
    """Adds counts to the file of totals; without a file, nothing is done."""
    path = path or os.environ.get(FILE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(totals)) + "\n")


def recorded(path: str) -> Totals:
    """The sum of all that was added to a file of totals."""
    totals = Totals()
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        part = json.loads(line)
        totals.add(Totals(part["passed"], part["failed"], [tuple(one) for one in part["skipped"]]))
    return totals


def shown(command: list[str]) -> tuple[int, str]:
    """Runs a command and shows what the command prints, line by line; its exit status, and the text."""
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        for line in process.stdout:
            said.append(line)
            sys.stdout.write(line)
            sys.stdout.flush()
    return process.returncode, "".join(said)


def run(path: str, name: str, command: list[str]) -> int:
    """Runs a command and counts its tests; the exit status."""
    status, said = shown(command)
    record(counted(name, said, status), path)
    return status


def show(path: str, status: int) -> None:
    """Prints the skipped tests and, last, the counts."""
    totals = recorded(path)
    if status and not totals.failed:
        totals.failed = 1
    if totals.skipped:
        print("\nskipped:")
        for test, why in totals.skipped:
            print(f"  {test}: {why}")
    print(f"\n{totals.last_line()}", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["run", path, name, *command] if command:
            sys.exit(run(path, name, command))
        case ["show", path, status]:
            show(path, int(status))
        case _:
            sys.exit(__doc__)
