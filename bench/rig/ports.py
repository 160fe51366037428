"""`bench/ports`: what a number of veth ports of one bridge costs: the time until they are ready, memory, CPU time at rest, and the time of a
change that adds or removes all of them.

The daemon makes the devices itself, whose far ends stand in a namespace of their own. What it writes to them, and the kernel's own work
for hundreds of devices, is part of the times.
"""

import argparse
import json
import os
import time
from pathlib import Path

from . import build, cli, host
from .netns import Namespace
from .planes.trivium import Daemon, binary
from .report import table
from .session import say
from .stats import pick
from .system import RUN_DIR, BenchError, run

ROOT = Path(__file__).resolve().parents[2]
COUNTS = (1, 50, 200, 1000)
#: Frames of the shared memory, and the number of ports for which these are enough; more ports get twice as many.
FRAMES, PORTS_OF_FRAMES = 65_536, 500
#: What the figures of 200 ports should be: seconds until ready, MiB, per cent of a core.
WANTED = {"ready_s": 3.0, "rss_mib": 200.0, "idle_percent": 1.0}
_REST, _IDLE = 3.0, 10.0
_PORT = """
[port.v{number}]
kind = "veth"
persist = false
[port.v{number}.peer]
name = "e{number}"
namespace = "{far}"
[bridge.br0.port.v{number}]
"""


def frames(count: int) -> int:
    """Frames of the shared memory for so many ports: each port needs 128 frames at least."""
    return FRAMES if count <= PORTS_OF_FRAMES else 2 * FRAMES


def objects(count: int, far: str) -> str:
    """A bridge of so many ports, as a configuration has them."""
    return "[bridge.br0]\n" + "".join(_PORT.format(number=number, far=far) for number in range(1, count + 1))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, all threads, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Resident memory of a process, frame memory that was touched included."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise BenchError(f"process {pid} has no VmRSS")


def kernel_mib() -> float:
    """Memory that the kernel has in large tables of its own, such as those of AF_XDP sockets: no process owns it."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("VmallocUsed:"):
            return int(line.split()[1]) / 1024
    raise BenchError("/proc/meminfo has no VmallocUsed")


def measure_count(count: int) -> dict:
    """One round with so many ports."""
    hub, far = Namespace("hub"), Namespace("far")
    daemon, empty = Daemon("ports", "Trivium"), RUN_DIR / "ports-empty.toml"
    try:
        own = kernel_mib()
        begin = time.monotonic()
        daemon.start(objects(count, far.name), "adaptive", hub.fd, frames=frames(count))
        found = {"ready_s": time.monotonic() - begin}
        time.sleep(_REST)
        pid = daemon.process.pid
        before, begin = cpu_seconds(pid), time.monotonic()
        time.sleep(_IDLE)
        found["idle_percent"] = 100 * (cpu_seconds(pid) - before) / (time.monotonic() - begin)
        found["rss_mib"], found["kernel_mib"] = memory_mib(pid), kernel_mib() - own
        whole = daemon.config.read_text()
        empty.write_text(whole.partition("[bridge.br0]")[0] + "[bridge.br0]\n")
        for name, file in (("remove_s", empty), ("add_s", daemon.config)):
            begin = time.monotonic()
            command = [str(binary()), "--socket", str(RUN_DIR / "trivium.sock"), "apply", "--force", str(file)]
            with hub.entered():
                run(command, timeout=300)
            found[name] = time.monotonic() - begin
        return found
    finally:
        daemon.stop()
        empty.unlink(missing_ok=True)
        for namespace in (hub, far):
            namespace.close()


def measure(rounds: int, counts: list[int], check) -> dict:
    """All rounds, as they go into `bench/results/ports.json`. `check` looks, before each round, that the build is the same."""
    hub = Namespace("hub")
    try:
        described = host.describe(hub)
    finally:
        hub.close()
    results = {"settings": {"rounds": rounds, "counts": counts}, "host": described, "ports": {str(count): [] for count in counts}}
    for number in range(1, rounds + 1):
        check()
        say(f"round {number}/{rounds}")
        for count in counts if number % 2 else counts[::-1]:
            found = measure_count(count)
            results["ports"][str(count)].append(found)
            say(f"    {count} ports: " + ", ".join(f"{name} {value:.2f}" for name, value in found.items()))
    return results


def markdown(results: dict) -> str:
    """The page."""
    settings, described = results["settings"], results["host"]
    names = {"ready_s": "ready after, s", "idle_percent": "at rest, % of a core", "rss_mib": "resident, MiB", "kernel_mib": "kernel tables, MiB", "add_s": "`apply` that adds all, s",
             "remove_s": "`apply` that removes all, s"}
    rows = []
    for count, rounds in results["ports"].items():
        def shown(name: str) -> str:
            found = pick(rounds, name)
            text = f"{found.median:.2f} [{found.low:.2f}-{found.high:.2f}]"
            if int(count) == 200 and name in WANTED:
                text += f" (wanted {WANTED[name]:g}{', **not met**' if found.median > WANTED[name] else ''})"
            return text
        rows.append([f"{int(count):,}", *(shown(name) for name in names)])
    return "\n".join([
        "# What ports cost\n",
        f"Written by `bench/ports`: do not edit. {described['cpu']}, {described['cpus']} CPUs, Linux {described['kernel']}, {described['date']}. "
        f"Medians of {settings['rounds']} rounds (lowest to highest in brackets). {build.line(results)}\n",
        "One bridge of veth ports that the daemon makes itself, with one worker and 65,536 frames of memory (twice as many from 501 ports on). Ready is the time from the start of the "
        "process to its `ready:` line; CPU time at rest is that of all its threads. Kernel tables are "
        "the growth of the kernel's VmallocUsed: each AF_XDP socket has a table of all frames, about 135 octets a frame. To clear these "
        "tables is most of the time of many ports.\n",
        table(["ports", *names.values()], rows)]) + "\n"


def main(argv: list[str]) -> int:
    """Entry of `bench/ports`."""
    parser = argparse.ArgumentParser(prog="bench/ports", description="Writes docs/benchmarks-ports.md and bench/results/ports.json.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds over all counts (default 3)")
    parser.add_argument("--count", type=int, action="append", help=f"a number of ports; may be repeated (default {', '.join(map(str, COUNTS))})")
    parser.add_argument("--quick", action="store_true", help="one round of 1 and 50 ports, writes nothing")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    counts = chosen.count or list(COUNTS)
    if chosen.rounds < 1 or not all(1 <= count <= 1000 for count in counts):
        parser.error("--rounds must be positive, --count from 1 to 1000")

    def job() -> None:
        if chosen.report:
            results = build.read(Path(chosen.report))
        else:
            noted = build.begin("ports", argv)
            rounds, asked = (1, [1, 50]) if chosen.quick else (chosen.rounds, counts)
            results = build.seal(measure(rounds, asked, lambda: build.check(noted)), noted)
        page = markdown(results)
        if not chosen.quick:
            (ROOT / "bench/results/ports.json").write_text(json.dumps(results, indent=1) + "\n")
            (ROOT / "docs/benchmarks-ports.md").write_text(page)
        print(page)

    return cli.alone(job, needs_root=not chosen.report)
