"""Benches without devices: `trivium bench` and testpmd over `net_null`, one core, in turn."""

import json
import re
import shutil
import subprocess
import time

from .lab import GENERATOR_CORE, PLANE_CORE
from .planes.testpmd import eal
from .planes.trivium import binary
from .system import RUN_DIR, BenchError, end, spawn, wait_until

SCENARIOS = {"port-to-port": ("port-to-port",), "parse": ("parse",), "bridge": ("bridge",),
             "bridge-100k": ("bridge-100k",), "bridge-2-workers": ("bridge", "--workers", "2")}
TESTPMD_MODES = ("io", "macswap")
_FIELDS = ("scenario", "mpps", "ns_per_packet", "tsc_cycles_per_packet", "allocations", "loss", "packets")


def jobs(seconds: float) -> list[tuple]:
    """(key, title, job, why it cannot run) of every bench in memory."""
    absent = None if binary().exists() else f"{binary()} is not built; run `make build`"
    listed = [(name, f"trivium bench {' '.join(words)}", lambda words=words: trivium(words, seconds), absent)
              for name, words in SCENARIOS.items()]
    absent = None if shutil.which("dpdk-testpmd") else "dpdk-testpmd is not installed; run `ci/setup bench`"
    return listed + [(f"testpmd-{mode}", f"testpmd {mode}, net_null", lambda mode=mode: testpmd(mode, seconds), absent)
                     for mode in TESTPMD_MODES]


def trivium(words: tuple[str, ...], seconds: float) -> dict:
    """One run of `trivium bench`; the last line of its output as an object."""
    scenario = " ".join(words)
    cores = {GENERATOR_CORE, PLANE_CORE} if "--workers" in words else {PLANE_CORE}
    process = spawn([str(binary()), "bench", *words, "--json", "--seconds", str(max(1, round(seconds)))], cores=cores,
                    stdout=subprocess.PIPE, log=RUN_DIR / "trivium-bench.log")
    try:
        text = process.communicate(timeout=seconds * 4 + 60)[0].decode(errors="replace")
        status = process.returncode
    except subprocess.TimeoutExpired:
        raise BenchError(f"trivium bench {scenario}: did not end in time") from None
    finally:
        end(process)
    if status != 0:
        raise BenchError(f"trivium bench {scenario}: status {status}; see {RUN_DIR}/trivium-bench.log")
    return parse_bench(text)


def parse_bench(text: str) -> dict:
    """Reads the last line that `trivium bench --json` prints."""
    lines = text.strip().splitlines()
    try:
        result = json.loads(lines[-1])
    except (IndexError, ValueError):
        raise BenchError(f"trivium bench: its last line is no JSON: {lines[-1][:200] if lines else 'no output'}") from None
    absent = [field for field in _FIELDS if field not in result]
    if absent:
        raise BenchError(f"trivium bench: its last line lacks {', '.join(absent)}")
    return result


def testpmd(mode: str, seconds: float) -> dict:
    """testpmd between two `net_null` ports: the rate of both directions together, by its own clock."""
    log = RUN_DIR / f"testpmd-null-{mode}.log"
    log.unlink(missing_ok=True)
    process = spawn([*eal(f"null-{mode}", "net_null0,size=64", "net_null1,size=64"), "--", "-i", f"--forward-mode={mode}",
                     "--nb-cores=1", "--total-num-mbufs=16384"], log=log, stdin=subprocess.PIPE)
    try:
        def say(command: str) -> None:
            process.stdin.write(command.encode() + b"\n")
            process.stdin.flush()

        def shown() -> int:
            return len(_RX_PPS.findall(log.read_text(errors="replace")))

        say("start")
        wait_until(lambda: "io packet forwarding" in (text := log.read_text(errors="replace"))
                   or f"{mode} packet forwarding" in text, f"testpmd net_null {mode}: forwarding (see {log})", 20)
        time.sleep(0.5)
        say("show port stats all")
        wait_until(lambda: shown() >= 2, f"testpmd net_null {mode}: its first counters")
        time.sleep(seconds)
        say("show port stats all")
        wait_until(lambda: shown() >= 4, f"testpmd net_null {mode}: its counters")
        say("quit")
        process.wait(5)
    except (BrokenPipeError, subprocess.TimeoutExpired):
        raise BenchError(f"testpmd net_null {mode}: ended early; see {log}") from None
    finally:
        end(process)
    mpps = parse_testpmd(log.read_text(errors="replace"))
    return {"mpps": mpps, "ns_per_packet": 1000 / mpps}


_RX_PPS = re.compile(r"Rx-pps:\s+(\d+)")


def parse_testpmd(text: str) -> float:
    """Mpps received by the two ports since the last but one `show port stats all`."""
    rates = [int(rate) for rate in _RX_PPS.findall(text)][-2:]
    if len(rates) < 2 or not all(rates):
        raise BenchError("testpmd net_null: no packet rate in its output")
    return sum(rates) / 1e6

