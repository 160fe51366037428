"""`bench/router`: one router between two hosts over veth, with one route and with a real full table.

Planes that live in the kernel receive in threaded NAPI on the plane's core; those of user space have that core, and NAPI is on the
generator's. Rates are compared within a group only. 64-byte frames at full rate, counted at the sink.
"""

import argparse
import gzip
import ipaddress
import json
import random
import subprocess
import time
from pathlib import Path

from . import bpf, build, cli, cpu, host, traffic
from .lab import GENERATOR_CORE, PLANE_CORE, SINK_MAC, Lab, check_cores, host_mac
from .planes import trivium
from .planes.base import Plane
from .planes.testpmd import TestpmdAfPacket
from .report import table
from .session import say
from .stats import pick
from .system import RUN_DIR, BenchError, end, our_pids, run, spawn, wait_until

ROOT = Path(__file__).resolve().parents[2]
D0_MAC, D1_MAC, NEXT_HOP = host_mac(0).hex(":"), "02:00:00:00:00:d1", "10.97.3.2"
FLOWS = traffic.Profile("routed", "routed", 1, 1, True)
TABLES = {"one": "one route", "full": "the real table"}
TARGETS = 1 << 20

ROUTER = "[router.edge]\n{settings}[router.edge.port.p0]\n[router.edge.port.p1]\n"


def prefixes() -> list[tuple[int, int]]:
    """The IPv4 part of the real table: first address and length."""
    found = []
    with gzip.open(ROOT / "bench/data/rib-prefixes.txt.gz", "rt") as lines:
        for line in lines:
            if ":" not in line:
                address, length = line.strip().split("/")
                if int(length):
                    found.append((int(ipaddress.IPv4Address(address)), int(length)))
    return found


def targets(key: str, routes: list[tuple[int, int]]) -> list[int]:
    """Random destinations, the same in every run."""
    chance = random.Random(1)
    if key == "one":
        return [10 << 24 | 50 << 16 | chance.getrandbits(16) for _ in range(TARGETS)]
    chosen = (chance.choice(routes) for _ in range(TARGETS))
    return [address | chance.getrandbits(32) & 0xFFFFFFFF >> length for address, length in chosen]


class Linux(Plane):
    """The kernel's own forwarding."""

    key, title, group, work = "linux", "Linux", "kernel", "veth, threaded NAPI"
    napi_by_gro = True

    def start(self, lab: Lab) -> None:
        pass

    def before_load(self, lab: Lab) -> None:
        super().before_load(lab)
        lab.pin_napi()


class _Trivium(Plane):
    settings, port, mode = "", "", "adaptive"

    def __init__(self):
        self.daemon = trivium.Daemon(f"router-{self.key}", self.title)

    def missing(self) -> str | None:
        return trivium.missing()

    def room(self) -> str:
        """What the ports are part of."""
        return ROUTER.format(settings=self.settings)

    def start(self, lab: Lab) -> None:
        ports = "".join(trivium.PORT.format(name=f"p{n}", device=f"d{n}") + self.port for n in (0, 1))
        self.daemon.start(ports + self.room(), self.mode, lab.dut.fd)

    def stop(self) -> None:
        self.daemon.stop()


class TriviumWorker(_Trivium):
    """Trivium's worker, polling."""

    key, title, work, mode = "trivium", "Trivium, worker", "veth, AF_XDP in copy mode", "busy"
    settings = "hook = false\n"


class TriviumHook(_Trivium):
    """Routes answered in the driver hook by Trivium's own tables."""

    key, title, group, work = "trivium-hook", "Trivium, driver hook", "kernel", "veth, XDP, threaded NAPI"

    def start(self, lab: Lab) -> None:
        lab.pass_at_ends(True)
        super().start(lab)
        lab.pin_napi()

    def before_load(self, lab: Lab) -> None:
        # Redirected frames reach a far end that takes GRO, whether or not the sink's program stands there.
        for namespace, device in ((lab.gen, "g0"), (lab.sink, "s0")):
            namespace.offloads(device, on=("gro",))
        lab.pass_at_ends(False)


class TriviumFib(TriviumHook):
    """The hook by the kernel's tables, which `bpf_fib_lookup` asks."""

    key, title = "trivium-fib", "XDP with bpf_fib_lookup (Trivium, `routing = \"kernel\"`)"
    port = "routing = \"kernel\"\n"

    def room(self) -> str:
        return ""


class Testpmd(TestpmdAfPacket):
    """Other Ethernet addresses, no look-up."""

    key, title, work = "testpmd-mac", "testpmd mac, net_af_packet", "veth, AF_PACKET ring"
    forward = f"mac --eth-peer=1,{SINK_MAC}"

    def start(self, lab: Lab) -> None:
        # The kernel is not to forward the same packets.
        lab.dut.sysctl("net.ipv4.ip_forward", "0")
        super().start(lab)


class Recvmsg(Plane):
    """A system call for each packet in, and one for each out."""

    key, title, work = "recvmsg", "recvmsg and sendmsg", "veth, AF_PACKET"
    napi_by_gro = True
    needs = ("clang",)

    def __init__(self):
        self.process: subprocess.Popen | None = None

    def start(self, lab: Lab) -> None:
        lab.dut.sysctl("net.ipv4.ip_forward", "0")
        program = RUN_DIR / "recvmsg"
        run(["clang", "-O2", "-Wall", "-Werror", "-o", str(program), str(ROOT / "bench/peers/recvmsg.c")])
        self.process = spawn([str(program), D0_MAC, "02:00:00:00:ff:01", D1_MAC, SINK_MAC], cores={PLANE_CORE}, netns=lab.dut.fd)

    def stop(self) -> None:
        end(self.process)
        self.process = None


PLANES = (Linux, TriviumFib, TriviumHook, Recvmsg, Testpmd, TriviumWorker)
# Those that look nothing up are the same with any table.
WITHOUT_TABLE = (Recvmsg, Testpmd)


def prepare(lab: Lab, key: str, routes: list[tuple[int, int]]) -> None:
    """Addresses, the sink as a neighbour, and the table in the kernel."""
    lab.dut.ip("link", "set", "d0", "address", D0_MAC)
    lab.dut.ip("link", "set", "d1", "address", D1_MAC)
    lab.dut.ip("addr", "add", "10.97.1.1/24", "dev", "d0")
    lab.dut.ip("addr", "add", "10.97.3.1/24", "dev", "d1")
    lab.dut.ip("neigh", "add", NEXT_HOP, "lladdr", SINK_MAC, "nud", "permanent", "dev", "d1")
    lab.dut.sysctl("net.ipv4.ip_forward", "1")
    if key == "one":
        lab.dut.ip("route", "add", "10.50.0.0/16", "via", NEXT_HOP)
        return
    batch = RUN_DIR / "routes"
    batch.write_text("".join(f"route add {ipaddress.IPv4Address(address)}/{length} via {NEXT_HOP}\n" for address, length in routes))
    run(["ip", "-n", lab.dut.name, "-batch", str(batch)], timeout=300)


def measure_plane(kind, key: str, routes: list[tuple[int, int]], aims: list[int], seconds: float) -> dict:
    """One plane with one table at full rate."""
    with Lab() as lab:
        prepare(lab, key, routes)
        plane = kind()
        try:
            plane.start(lab)
            plane.before_load(lab)
            sink = bpf.Program("sink")
            index = lab.sink.ifindex("s0")
            with lab.sink.entered():
                sink.attach("sink", index)
            try:
                return _count(lab, sink, aims, seconds)
            finally:
                with lab.sink.entered():
                    bpf.detach(index)
                sink.close()
        finally:
            plane.stop()


def _count(lab: Lab, sink: bpf.Program, aims: list[int], seconds: float) -> dict:
    generator = traffic.Generator(lab, FLOWS, frame=traffic.frame_template("0.0.0.0", "10.97.1.2"), targets=aims)
    try:
        # With a full table a plane may still be reading it.
        wait_until(lambda: sink.percpu_sum("delivered") > 1000, "frames at the sink", 60)
        time.sleep(1)
        cpu_a, delivered, offered, began = cpu.snapshot(), sink.percpu_sum("delivered"), generator.offered(), time.monotonic()
        time.sleep(seconds)
        delivered, offered = sink.percpu_sum("delivered") - delivered, generator.offered() - offered
        elapsed, used = time.monotonic() - began, cpu.usage(cpu_a, cpu.snapshot(), our_pids())
    finally:
        generator.stop()
    return {"mpps": delivered / elapsed / 1e6, "offered_mpps": offered / elapsed / 1e6,
            "generator_busy": used.busy[GENERATOR_CORE] / used.seconds, "busy": used.busy[PLANE_CORE] / used.seconds,
            "disturbed": used.disturbed()}


def measure(rounds: int, seconds: float, keys: list[str], only: set[str] | None, check=lambda: None) -> dict:
    """All rounds, as they go into `bench/results/router.json`; `check` comes after each round."""
    check_cores()
    kinds = [kind for kind in PLANES if not only or kind.key in only]
    if not kinds:
        raise BenchError(f"no plane of these; there are {', '.join(kind.key for kind in PLANES)}")
    routes = prefixes() if "full" in keys else []
    aims = {key: targets(key, routes) for key in keys}
    with Lab() as lab:
        described = host.describe(lab.dut)
    results = {"settings": {"rounds": rounds, "seconds": seconds, "tables": keys, "routes": len(routes)}, "host": described,
               "planes": {kind.key: {"title": kind.title, "group": kind.group, "work": kind.work, "rounds": []} for kind in kinds}}
    for number in range(1, rounds + 1):
        say(f"round {number}/{rounds}")
        for kind in kinds if number % 2 else kinds[::-1]:
            entry, found = results["planes"][kind.key], {}
            missing = kind().missing()
            if missing:
                entry["missing"] = missing
                continue
            for key in keys:
                if key != keys[0] and kind in WITHOUT_TABLE:
                    continue
                try:
                    found[key] = measure_plane(kind, key, routes, aims[key], seconds)
                except BenchError as error:
                    found[key] = {"error": str(error)}
            entry["rounds"].append(found)
            say(f"    {kind.title}: " + " ".join(f"{key} {p['mpps']:.3f}M" if "mpps" in p else f"{key} {p['error']}" for key, p in found.items()))
        check()
    return results


def wanted(results: dict) -> list[list[str]]:
    """What was wanted, as ratios of medians within a run."""
    def rate(key: str, of: str):
        entry = results["planes"].get(key)
        return pick(entry["rounds"], of, "mpps") if entry else None

    rows = []
    for ours, theirs, of, least in (("trivium-hook", "linux", "one", 2.0), ("trivium-hook", "linux", "full", 4.0),
                                    ("trivium", "testpmd-mac", "one", 1.0), ("trivium", "recvmsg", "one", 2.5)):
        a, b = rate(ours, of), rate(theirs, of)
        if a and b and b.median:
            ratio = a.median / b.median
            names = [results["planes"][key]["title"] for key in (ours, theirs)]
            rows.append([f"{names[0]} : {names[1]}, {TABLES[of]}", f"at least {least:g}x", f"{ratio:.2f}x", "met" if ratio >= least else "**not met**"])
    return rows


def markdown(results: dict) -> str:
    """The page."""
    settings, described, found = results["settings"], results["host"], results["planes"]
    rows = []
    for entry in found.values():
        row = [entry["title"], entry["group"], entry["work"]]
        for key in settings["tables"]:
            rate, busy = pick(entry["rounds"], key, "mpps"), pick(entry["rounds"], key, "busy")
            generator = pick(entry["rounds"], key, "generator_busy")
            row.append(f"{rate.median:.3f} [{rate.low:.3f}-{rate.high:.3f}]; {100 * generator.median:.0f} %, {100 * busy.median:.0f} %"
                       if rate else entry.get("missing", "looks nothing up"))
        rows.append(row)
    heads = ["plane", "group", "ports", *(f"{TABLES[key]}: Mpps; cores {GENERATOR_CORE}, {PLANE_CORE}" for key in settings["tables"])]
    return "\n".join([
        "# One router between two hosts\n",
        f"Written by `bench/router`: do not edit. {described['cpu']}, {described['cpus']} CPUs, Linux {described['kernel']}, {described['date']}. "
        f"Medians of {settings['rounds']} rounds (lowest to highest in brackets), {settings['seconds']:g} s each, planes in turn. {build.line(results)}\n",
        f"```sh\nsudo bench/router --rounds {settings['rounds']} --seconds {settings['seconds']:g}\n```\n",
        table(["what", "wanted", "measured", ""], wanted(results)),
        f"\n64-byte frames at full rate between two namespaces, a million random destinations: in 10.50.0.0/16, by one route; in the {settings['routes']:,} IPv4 "
        f"prefixes of a real table. Group `kernel` receives in threaded NAPI on core {PLANE_CORE}; in group `user` the plane has core {PLANE_CORE} and NAPI "
        f"is on core {GENERATOR_CORE} beside the generator. Rates are compared within a group only.\n",
        table(heads, rows), ""])


def pages(results: dict) -> dict[str, str]:
    """The page, by file name."""
    return {"benchmarks-router.md": markdown(results)}


def main(argv: list[str]) -> int:
    """Entry of `bench/router`."""
    parser = argparse.ArgumentParser(prog="bench/router", description="Writes docs/benchmarks-router.md and bench/results/router.json.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of each measurement (default 3)")
    parser.add_argument("--only", action="append", metavar="KEY", help="only this plane (may be repeated): " + ", ".join(k.key for k in PLANES))
    parser.add_argument("--table", action="append", choices=TABLES, help="only this table (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="one round of one second, writes nothing")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")

    def job() -> None:
        if chosen.quick:
            chosen.rounds, chosen.seconds = 1, 1
        keys = [key for key in TABLES if not chosen.table or key in chosen.table]
        if chosen.report:
            results = build.read(Path(chosen.report))
        else:
            noted = build.begin("router", argv)
            only = set(chosen.only) if chosen.only else None
            results = build.seal(measure(chosen.rounds, chosen.seconds, keys, only, lambda: build.check(noted)), noted)
        if not (chosen.quick or chosen.only or chosen.table):
            (ROOT / "bench/results/router.json").write_text(json.dumps(results, indent=1) + "\n")
            for name, text in pages(results).items():
                (ROOT / "docs" / name).write_text(text)
        print(markdown(results))

    return cli.alone(job, needs_root=not chosen.report)
