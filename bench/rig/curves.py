"""`bench/hook`: what the driver hook costs from no load to saturation, and what a service keeps under a flood.

Three curves, each over planes that take turns in every round:

- CPU time of the plane's core, and frames lost, against offered load through a bridge;
- round trips of pings beside that load;
- transactions of a TCP ping-pong service against a flood of UDP, with and without the filter.

The load is the rig's own generator, paced; what is delivered is counted by the rig's own sink, or by the service.
"""

import argparse
import dataclasses
import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from . import bpf, build, cli, cpu, host, plot, planes, traffic
from .lab import GEN_IP, GEN_MAC, GENERATOR_CORE, PLANE_CORE, Lab, check_cores, host_mac
from .planes.testpmd import TestpmdRxonly
from .planes.trivium import TriviumHook, binary
from .report import spread, table
from .session import answers, say
from .stats import pick, summarize
from .system import RUN_DIR, BenchError, end, end_forked, forget, forked, our_pids, spawn, wait_until

ROOT = Path(__file__).resolve().parents[2]
# Offered load through a bridge, in Mpps.
LOADS = (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0)
# The flood, as a share of what the plane's core can drop.
FLOODS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
HOSTS = 64
# The flood goes to the first of the generator's hosts.
SERVICE_IP, SERVICE_PORT, D0_MAC = "10.99.0.3", 7000, host_mac(0).hex(":")
_SETTLE_S = 0.5
_MESSAGE = b"x" * 64

FILTER_CONFIG = """\
[daemon]
api = "{dir}/trivium.sock"
state_dir = "{dir}/trivium-state"

[engine]
workers = [{core}]

[memory]
frames = 8192

[filter.flood]
[[filter.flood.rule]]
name = "udp"
action = "drop"
protocol = ["udp"]
destination_port = 9

[port.p0]
kind = "af_xdp"
device = "d0"
persist = false
filter = "flood"
"""


class PacedLoad:
    """The generator at a rate, or nothing at rate 0."""

    def __init__(self, lab: Lab, rate: float, hosts: int, destination: str):
        # Pings and the service's client share the generator's core, and go first.
        profile = dataclasses.replace(traffic.FEW, hosts=hosts)
        self.generator = traffic.Generator(lab, profile, rate, destination, yielding=True) if rate > 0 else None
        time.sleep(_SETTLE_S)

    def offered(self) -> int:
        """Frames made so far."""
        return self.generator.offered() if self.generator else 0

    def stop(self) -> None:
        """Ends it."""
        if self.generator:
            self.generator.stop()


def bridge_round(plane: planes.Plane, seconds: float) -> list[dict]:
    """One plane through all loads: offered and delivered frames, busy share of its core, pings."""
    points = []
    with Lab() as lab:
        try:
            plane.start(lab)
            plane.before_hosts(lab)
            wait_until(lambda: answers(lab), f"{plane.title}: a ping through it", 15)
            plane.before_load(lab)
            # Redirected frames, answers to pings among them, reach a far end that takes GRO.
            for namespace, device in ((lab.gen, "g0"), (lab.sink, "s0")):
                namespace.offloads(device, on=("gro",))
            sink = bpf.Program("sink")
            with lab.sink.entered():
                sink.attach("sink", lab.sink.ifindex("s0"))
            try:
                lab.learn_hosts(HOSTS)
                time.sleep(_SETTLE_S)
                for load in LOADS:
                    points.append(_bridge_point(lab, sink, load, seconds))
            finally:
                with lab.sink.entered():
                    bpf.detach(lab.sink.ifindex("s0"))
                sink.close()
        finally:
            plane.stop()
    return points


def _bridge_point(lab: Lab, sink: bpf.Program, load: float, seconds: float) -> dict:
    paced = PacedLoad(lab, load * 1e6, HOSTS, "10.99.1.2")
    try:
        cpu_a, delivered, offered, began = cpu.snapshot(), sink.percpu_sum("delivered"), paced.offered(), time.monotonic()
        time.sleep(seconds)
        delivered, offered = sink.percpu_sum("delivered") - delivered, paced.offered() - offered
        elapsed, used = time.monotonic() - began, cpu.usage(cpu_a, cpu.snapshot(), our_pids())
        pinged = traffic.ping(lab, max(50, round(seconds * 100)))
    finally:
        paced.stop()
    return {"load": load, "sent_mpps": offered / elapsed / 1e6, "mpps": delivered / elapsed / 1e6,
            "busy": used.busy[PLANE_CORE] / used.seconds, "ping": dataclasses.asdict(pinged),
            "disturbed": used.disturbed()}


class Service:
    """A TCP server on the plane's core that sends back what it gets, in `dut`."""

    def __init__(self, lab: Lab):
        with lab.dut.entered():
            listener = socket.create_server((SERVICE_IP, SERVICE_PORT))

        def serve() -> None:
            while True:
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while message := connection.recv(4096):
                    connection.sendall(message)
                connection.close()

        self.pid = forked(serve, cores={PLANE_CORE}, netns=lab.dut.fd)
        listener.close()

    def stop(self) -> None:
        """Ends the process."""
        end_forked(self.pid)


def transactions(lab: Lab, seconds: float, rate: float | None) -> float:
    """Transactions a second of one client on the generator's core; at most `rate` of them are begun."""
    read, write = os.pipe()
    pid = forked(lambda: os.write(write, f"{_ping_pong(seconds, rate)}\n".encode()), cores={GENERATOR_CORE}, netns=lab.gen.fd)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    forget(pid)
    if not text:
        raise BenchError("the service's client failed: no connection")
    return float(text)


def _ping_pong(seconds: float, rate: float | None) -> float:
    """One at a time: who is late begins the next at once, and what did not fit in is not made up for."""
    try:
        stream = socket.create_connection((SERVICE_IP, SERVICE_PORT), timeout=seconds + 2)
    except OSError:
        return 0.0
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    began = time.perf_counter()
    due, done = began, 0
    while (now := time.perf_counter()) < began + seconds:
        if rate:
            if now < due:
                time.sleep(min(due - now, began + seconds - now))
                continue
            due = max(due + 1 / rate, now - 10 / rate)
        stream.settimeout(max(0.001, began + seconds - now))
        try:
            stream.sendall(_MESSAGE)
            left = len(_MESSAGE)
            while left:
                got = len(stream.recv(left))
                if not got:
                    return done / seconds
                left -= got
        except TimeoutError:
            break
        done += 1
    return done / seconds


def _unprotected(lab: Lab) -> Callable[[], None]:
    lab.pin_napi()
    return lambda: None


def _bare_drop(lab: Lab) -> Callable[[], None]:
    program = bpf.Program("sink")
    with lab.dut.entered():
        program.attach("sink", lab.dut.ifindex("d0"))
    lab.pin_napi()
    return program.close


def _filtered(lab: Lab) -> Callable[[], None]:
    config = RUN_DIR / "flood.toml"
    config.write_text(FILTER_CONFIG.format(dir=RUN_DIR, core=PLANE_CORE))
    log = RUN_DIR / "flood.log"
    log.unlink(missing_ok=True)
    process = spawn([str(binary()), "run", "-c", str(config)], netns=lab.dut.fd, log=log)
    wait_until(lambda: "xdp" in lab.dut.ip("link", "show", "d0") or process.poll() is not None, f"trivium's filter (see {log})", 15)
    if process.poll() is not None:
        raise BenchError(f"trivium: ended with status {process.returncode}; see {log}")
    lab.pin_napi()
    return lambda: end(process, grace=10)


DEFENCES = {"none": ("no filter: the kernel's stack answers", _unprotected), "filter": ("Trivium's filter, one rule", _filtered),
            "bare": ("a bare XDP program that drops", _bare_drop)}


def service_round(key: str, ceiling_mpps: float, seconds: float) -> dict:
    """One defence through all floods: transactions a second, of those offered."""
    points = []
    with Lab() as lab:
        lab.dut.ip("link", "set", "d0", "address", D0_MAC)
        lab.dut.ip("addr", "add", f"{SERVICE_IP}/24", "dev", "d0")
        lab.gen.ip("neigh", "add", SERVICE_IP, "lladdr", D0_MAC, "nud", "permanent", "dev", "g0")
        lab.dut.ip("neigh", "add", GEN_IP, "lladdr", GEN_MAC, "nud", "permanent", "dev", "d0")
        lab.receive_with_napi(True)
        lab.gen.offloads("g0", on=("gro",))
        stop = DEFENCES[key][1](lab)
        service = Service(lab)
        try:
            wait_until(lambda: transactions(lab, 0.2, None) > 0, "the service's first answer", 10)
            quiet = transactions(lab, seconds, None)
            for flood in FLOODS:
                paced = PacedLoad(lab, flood * ceiling_mpps * 1e6, 1, SERVICE_IP)
                try:
                    before, began = paced.offered(), time.monotonic()
                    done = transactions(lab, seconds, quiet / 2)
                    sent = (paced.offered() - before) / (time.monotonic() - began)
                finally:
                    paced.stop()
                points.append({"flood": flood, "sent_mpps": sent / 1e6, "kept": done / (quiet / 2)})
                time.sleep(_SETTLE_S)
        finally:
            service.stop()
            stop()
    return {"quiet": quiet, "points": points}


def drop_ceiling(seconds: float) -> float:
    """Mpps that a bare XDP program on the plane's core drops, at full rate from the generator's."""
    with Lab() as lab:
        lab.receive_with_napi(True)
        lab.pin_napi()
        return traffic.full_rate(lab, traffic.FEW, seconds, sink_at=(lab.dut, "d0")).mpps


def rxonly_ceiling(seconds: float) -> float | None:
    """Mpps that testpmd receives and frees on the plane's core, NAPI and generator on the generator's; None where it is not installed."""
    plane = TestpmdRxonly()
    if plane.missing():
        return None
    with Lab() as lab:
        try:
            plane.start(lab)
            generator = traffic.Generator(lab, traffic.FEW)
            time.sleep(seconds)
            generator.stop()
        finally:
            plane.stop()
    return plane.received() / seconds / 1e6


def measure(rounds: int, seconds: float, check=lambda: None) -> dict:
    """All rounds, as they go into `bench/results/hook.json`; `check` comes after each round."""
    check_cores()
    with Lab() as lab:
        results = {"settings": {"rounds": rounds, "seconds": seconds}, "host": host.describe(lab.dut), "bridge": {}, "service": {},
                   "ceiling": [], "rxonly": []}
    kinds = (TriviumHook, *(kind for kind in planes.ALL if kind.key in ("linux-bridge", "xdp-redirect")))
    for number in range(1, rounds + 1):
        say(f"round {number}/{rounds}")
        results["ceiling"].append(drop_ceiling(seconds))
        say(f"    a bare program drops {results['ceiling'][-1]:.2f} Mpps")
        rxonly = rxonly_ceiling(seconds)
        results["rxonly"] += [] if rxonly is None else [rxonly]
        say(f"    testpmd rxonly receives {rxonly:.2f} Mpps" if rxonly is not None else "    testpmd is not installed: no rxonly")
        for kind in kinds:
            plane = kind()
            entry = results["bridge"].setdefault(plane.key, {"title": plane.title, "rounds": []})
            entry["rounds"].append(bridge_round(plane, seconds))
            say(f"    {plane.title}: core {PLANE_CORE} " + " ".join(f"{p['load']:g}M:{p['busy']:.0%}" for p in entry["rounds"][-1]))
        for key, (title, _) in DEFENCES.items():
            entry = results["service"].setdefault(key, {"title": title, "rounds": []})
            entry["rounds"].append(service_round(key, results["ceiling"][-1], seconds))
            last = entry["rounds"][-1]
            say(f"    {title}: {last['quiet']:.0f}/s, kept " + " ".join(f"{p['flood']:.0%}:{p['kept']:.0%}" for p in last["points"]))
        check()
    return results


def point(entry: dict, index: int, *path: str):
    """The summary over the rounds of one number at one load."""
    return pick([one[index] for one in entry["rounds"]], *path)


def kept(entry: dict, index: int):
    """The summary over the rounds of what a defence keeps under one flood."""
    return pick([one["points"][index] for one in entry["rounds"]], "kept")


def targets(results: dict) -> list[list[str]]:
    """What was wanted of these curves."""
    ours, half = results["bridge"][TriviumHook.key], FLOODS.index(0.5)
    idle, alive = point(ours, 0, "busy"), kept(results["service"]["filter"], half)
    return [["CPU time of the plane's core without load", "under 1 %", f"{100 * idle.median:.2f} %", _met(idle.median < 0.01)],
            ["transactions under a flood of half the drop ceiling, filtered", "at least 80 %", f"{100 * alive.median:.0f} %",
             _met(alive.median >= 0.8)]]


def _met(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


def markdown(results: dict) -> str:
    """The page."""
    settings, described = results["settings"], results["host"]
    ceiling = summarize(results["ceiling"])
    parts = ["# The driver hook from no load to saturation\n",
             f"Written by `bench/hook`: do not edit. {described['cpu']}, {described['cpus']} CPUs, Linux {described['kernel']}, {described['date']}. "
             f"Medians of {settings['rounds']} rounds (lowest to highest in brackets), {settings['seconds']:g} s each point. {build.line(results)}\n",
             "![The curves](benchmarks-hook.svg)\n",
             f"```sh\nsudo bench/hook --rounds {settings['rounds']} --seconds {settings['seconds']:g}\n```\n",
             table(["what", "wanted", "measured", ""], targets(results)),
             "\n## CPU time of the plane's core against offered load\n",
             "64-byte frames to 64 known stations; threaded NAPI on core 1, the paced generator on core 0 (bursts of up to 64 frames, at most 100 us apart). In "
             "brackets the share that was lost.\n"]
    heads = ["plane", *(f"{load:g} Mpps" for load in LOADS)]
    rows = [[entry["title"], *(f"{100 * point(entry, i, 'busy').median:.1f} %{_lost(entry, i)}" for i in range(len(LOADS)))]
            for entry in results["bridge"].values()]
    parts += [table(heads, rows), "\n## Round trips beside that load\n",
              "`ping -i 0.01` from the generator's core, microseconds, median / 99th percentile. The generator never leaves its core idle, so with any load a ping "
              "waits there for a burst to end, whatever the plane does.\n"]
    rows = [[entry["title"], *(f"{point(entry, i, 'ping', 'p50').median:.0f} / {point(entry, i, 'ping', 'p99').median:.0f}"
                               for i in range(len(LOADS)))] for entry in results["bridge"].values()]
    parts += [table(heads, rows), "\n## A service under a flood\n",
              f"A TCP ping-pong service on core 1 and its client on core 0, offered at half its quiet rate, and a flood of 64-byte UDP frames from core 0. A bare program on "
              f"core 1 drops {spread(ceiling, 2)} Mpps; the flood is a share of it ({_rxonly(results)}). Figures are the share of the offered transactions that were completed.\n"]
    rows = [[entry["title"], f"{pick(entry['rounds'], 'quiet').median:.0f}",
             *(f"{100 * kept(entry, i).median:.0f} % ({100 * kept(entry, i).low:.0f}-{100 * kept(entry, i).high:.0f})" for i in range(len(FLOODS)))]
            for entry in results["service"].values()]
    parts.append(table(["in front of it", "quiet, 1/s", *(f"flood {flood:.0%}" for flood in FLOODS)], rows))
    return "\n".join(parts) + "\n"


def _rxonly(results: dict) -> str:
    measured = summarize(results.get("rxonly", []))
    if measured is None:
        return "testpmd rxonly: not measured"
    return (f"beside it, testpmd rxonly over net_af_xdp receives and frees {spread(measured, 2)} Mpps, with the receiving NAPI on the generator's core: "
            "the kernel's part of the path is not on the core that is compared")


def _lost(entry: dict, index: int) -> str:
    shares = [1 - one[index]["mpps"] / one[index]["sent_mpps"] for one in entry["rounds"] if one[index]["sent_mpps"] > 0.001]
    lost = summarize(shares)
    return f" ({100 * lost.median:.0f} %)" if lost and lost.median > 0.005 else ""


def svg(results: dict) -> str:
    """The curves as a picture."""
    def bridge(*path: str, scale: float = 1):
        return [(entry["title"], key, [(load, scale * point(entry, i, *path).median) for i, load in enumerate(LOADS)])
                for key, entry in results["bridge"].items()]

    service = [(entry["title"], {"filter": TriviumHook.key, "bare": "xdp-redirect"}.get(key, "linux-bridge"),
                [(100 * flood, 100 * kept(entry, i).median) for i, flood in enumerate(FLOODS)])
               for key, entry in results["service"].items()]
    return plot.curves("The driver hook from no load to saturation", [
        plot.Curves("CPU time of the plane's core", "Mpps offered", "% of the core", bridge("busy", scale=100)),
        plot.Curves("ping beside that load, median", "Mpps offered", "microseconds", bridge("ping", "p50")),
        plot.Curves("TCP ping-pong under a flood", "flood, % of what the core can drop", "% of the offered transactions", service)])


def pages(results: dict) -> dict[str, str]:
    """The page and the plot, by file name."""
    return {"benchmarks-hook.md": markdown(results), "benchmarks-hook.svg": svg(results)}


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench/hook", description="CPU against offered load, latency beside load, and a service under a "
                                     "flood; writes docs/benchmarks-hook.md, docs/benchmarks-hook.svg and bench/results/hook.json.")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, all planes take turns in each (default 3)")
    parser.add_argument("--seconds", type=float, default=2, help="length of each point (default 2)")
    parser.add_argument("--dry", action="store_true", help="print the page instead of writing it")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")

    def job() -> None:
        if chosen.report:
            results = build.read(Path(chosen.report))
        else:
            noted = build.begin("hook", argv)
            results = build.seal(measure(chosen.rounds, chosen.seconds, lambda: build.check(noted)), noted)
        if chosen.dry:
            print(markdown(results))
            return
        (ROOT / "bench/results/hook.json").write_text(json.dumps(results, indent=1) + "\n")
        for name, text in pages(results).items():
            (ROOT / "docs" / name).write_text(text)

    return cli.alone(job, needs_root=not chosen.report)
