"""The command line of `bench/run`."""

import argparse
import fcntl
import json
import os
import signal
import sys
from pathlib import Path

from . import build, plot, report
from .netns import remove_remnants
from .session import Session, medians, say
from .system import RUN_DIR, BenchError, end_remnants

ROOT = Path(__file__).resolve().parents[2]


def arguments(argv: list[str]) -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(
        prog="bench/run", description="Measures Trivium side by side with its peers, in network namespaces. A whole run writes "
        "docs/benchmarks.md, docs/benchmarks.svg and bench/results/latest.json; a partial one writes to " + str(RUN_DIR) + ".")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each over all planes in random order (default 5)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--only", action="append", metavar="KEY", help="only this plane or bench (may be repeated); the keys "
                        "are those of bench/results/latest.json")
    parser.add_argument("--quick", action="store_true", help="one round of one second: shows that all peers forward")
    parser.add_argument("--retries", type=int, default=2, help="how often a disturbed measurement is made again (default 2)")
    parser.add_argument("--seed", type=int, help="of the order (default random; the report names it)")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the report anew from these results")
    parser.add_argument("--clean", action="store_true", help="only end and remove what a killed run left")
    chosen = parser.parse_args(argv)
    if chosen.quick:
        chosen.rounds, chosen.seconds, chosen.retries = 1, 1, 0
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return chosen


def main(argv: list[str]) -> int:
    """Returns the exit status: 0 measured, 1 failed, 130 interrupted."""
    chosen = arguments(argv)

    def job() -> None:
        if chosen.report:
            write(build.read(Path(chosen.report)), whole=True)
        elif not chosen.clean:
            noted = build.begin("run", argv)
            results = Session(chosen.rounds, chosen.seconds, set(chosen.only) if chosen.only else None, chosen.retries,
                              chosen.seed).measure(lambda: build.check(noted))
            write(build.seal(results, noted), whole=not (chosen.only or chosen.quick))

    return alone(job, needs_root=not chosen.report)


def alone(job, needs_root: bool) -> int:
    """Does a job as the only rig, on a machine without remnants of a killed one; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        if not needs_root:
            job()
            return 0
        if os.geteuid() != 0:
            raise BenchError("namespaces, XDP and AF_XDP need root; run `sudo make bench`")
        with exclusive():
            clean()
            job()
        return 0
    except KeyboardInterrupt:
        say("interrupted; all namespaces and processes of the run are gone")
        return 130
    except (BenchError, OSError, ValueError) as error:
        say(f"bench: {error}")
        return 1


def exclusive():
    """One rig at a time: a second one would take the first one's namespaces for remnants. Held until the file is closed."""
    RUN_DIR.mkdir(mode=0o700, exist_ok=True)
    lock = open(RUN_DIR / "lock", "w", encoding="ascii")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise BenchError(f"another bench is running (it holds {RUN_DIR}/lock); wait for it to end") from None
    return lock


def clean() -> None:
    """Ends and removes what an earlier run left when it was killed."""
    processes, namespaces = end_remnants(), remove_remnants()
    if processes or namespaces:
        say(f"removed remnants of a killed run: {processes} processes, {namespaces} namespaces")


def pages(results: dict) -> dict[str, str]:
    """The page and the plot, by file name."""
    notes, scaling = ROOT / "bench/notes.md", ROOT / "bench/results/scaling.json"
    page = report.markdown(results, notes.read_text() if notes.exists() else "",
                           json.loads(scaling.read_text()) if scaling.exists() else None)
    return {"benchmarks.md": page, "benchmarks.svg": plot.svg(results)}


def write(results: dict, whole: bool) -> None:
    """Writes results, report and plot, and prints the medians."""
    kept, docs = (ROOT / "bench/results", ROOT / "docs") if whole else (RUN_DIR, RUN_DIR)
    texts = {kept / "latest.json": json.dumps(results, indent=1) + "\n"}
    texts |= {docs / name: text for name, text in pages(results).items()}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print("\n".join(medians(results)))
    print("wrote " + ", ".join(str(path) for path in texts))


def run() -> None:
    """Entry of `bench/run`."""
    sys.exit(main(sys.argv[1:]))
