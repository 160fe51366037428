"""The build that a run measures, and the seal on its results: a page holds the rows of one run of one build."""

import hashlib
import json
import shlex
import time
from pathlib import Path

from .planes.trivium import ROOT, binary
from .system import BenchError, run

#: What a page says of results that were kept before the tool named builds.
UNKNOWN = ("**The build is unknown, and rows may be of several builds: these results are older than the tool's seal. The next run of the command "
           "below replaces all of them.**")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise BenchError(f"{path}: {error.strerror}; run `make build`") from None


def begin(name: str, arguments: list[str]) -> dict:
    """What a run notes before it measures: the commit, the binary, the command and the time."""
    commit = run(["git", "-C", str(ROOT), "describe", "--always", "--dirty=, with uncommitted changes"]).strip()
    return {"commit": commit, "binary": digest(binary()), "command": shlex.join([f"bench/{name}", *arguments]),
            "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}


def check(noted: dict) -> None:
    """Raises an error if the binary is no longer the one of the run's first row."""
    if digest(binary()) != noted["binary"]:
        raise BenchError(f"{binary()} was built anew during the run: rows of two builds do not go into one page; measure again")


def seal(results: dict, noted: dict) -> dict:
    """The results with the note of their build, after a last check, and with a digest over all of it."""
    check(noted)
    sealed = results | {"run": noted}
    # Numbers are those that a reader of the file finds.
    sealed = json.loads(json.dumps(sealed))
    return sealed | {"run": sealed["run"] | {"seal": _digest_of(sealed)}}


def _digest_of(results: dict) -> str:
    noted = {key: value for key, value in results["run"].items() if key != "seal"}
    return hashlib.sha256(json.dumps(results | {"run": noted}, sort_keys=True).encode()).hexdigest()


def read(path: Path) -> dict:
    """Results of a run from a file. Raises an error if they are not as the run left them, as when rows of another run were put in."""
    results = json.loads(path.read_text(encoding="utf-8"))
    if "run" in results and results["run"].get("seal") != _digest_of(results):
        raise BenchError(f"{path}: these results are not as their run left them; rows of another run or build do not go into one page")
    return results


def line(results: dict) -> str:
    """What a page says of its build."""
    noted = results.get("run")
    if noted is None:
        return UNKNOWN
    return f"Build {noted['commit']} (`trivium` with SHA-256 {noted['binary'][:16]}), all rows in one run of `{noted['command']}`, begun {noted['began']}."
