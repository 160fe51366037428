"""`bench/all`: every page of figures, one after the other, by one build."""

import argparse
import json

from . import build, cli, convergence, curves, routers, routing, switching
from .session import say
from .system import BenchError

#: The commands, each with the file of its results.
PAGES = {"run": (cli, "latest.json"), "switch": (switching, "switch.json"), "hook": (curves, "hook.json"), "router": (routing, "router.json"),
         "two-routers": (routers, "two-routers.json"), "convergence": (convergence, "convergence.json")}


def results(name: str) -> dict:
    """The results that are kept of a command."""
    return build.read(cli.ROOT / "bench/results" / PAGES[name][1])


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench/all", description="Runs all benches that write a page: " + ", ".join(PAGES) + ". All pages are "
                                     "of one build: the command ends where the binary is built anew meanwhile.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each bench (default 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of each measurement (default 3)")
    parser.add_argument("--report", action="store_true", help="measure nothing; write all pages anew from the results that are kept")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    try:
        if chosen.report:
            for name, (module, _) in PAGES.items():
                for file, text in module.pages(results(name)).items():
                    (cli.ROOT / "docs" / file).write_text(text, encoding="utf-8")
            return 0
        noted = build.begin("all", argv)
        for name, (module, _) in PAGES.items():
            say(f"bench/{name}")
            build.check(noted)
            length = [] if name == "convergence" else ["--seconds", f"{chosen.seconds:g}"]
            status = module.main(["--rounds", str(chosen.rounds), *length])
            if status:
                return status
        build.check(noted)
    except (BenchError, OSError, json.JSONDecodeError) as error:
        say(f"bench: {error}")
        return 1
    return 0
