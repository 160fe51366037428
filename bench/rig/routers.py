"""`bench/two-routers`: FRR over the kernel against FRR over Trivium, two routers in a row.

The experiment of "Method to accelerate virtual router data plane based on VPP" without its NICs: `gen` - `r1` - `r2` - `sink`. FRR's
zebra and bgpd run in both routers; r2 announces 100 prefixes to r1; frames to addresses of all of them go through both, which share one
core. Sizes count the FCS, as theirs do.
"""

import argparse
import json
import shutil
import time
from pathlib import Path

from . import bpf, build, cli, cpu, host, traffic
from .lab import GEN_MAC, GENERATOR_CORE, PLANE_CORE, SINK_MAC, Network, check_cores, host_mac, pin_napi_of
from .netns import Namespace, veth
from .planes import trivium
from .report import table
from .session import say
from .stats import pick
from .system import RUN_DIR, BenchError, end, our_pids, run, spawn, wait_until

ROOT = Path(__file__).resolve().parents[2]
FRR = Path("/usr/lib/frr")
PREFIXES = 100
SIZES = (64, 128, 256, 512, 1024, 1512)
# Destinations in all of them.
TARGETS = [10 << 24 | 50 << 16 | number % PREFIXES << 8 | number * 7 % 256 for number in range(1 << 14)]
# Their figures: one core, 64 bytes, DPDK ports.
PAPER = 5.852 / 0.745
# One station, which the first router is; flows differ by their destinations.
FLOWS = traffic.Profile("routed", "100 prefixes", 1, 1, True)

R1_BGP = """\
router bgp 65001
 bgp router-id 10.97.2.1
 no bgp ebgp-requires-policy
 neighbor 10.97.2.2 remote-as 65002
 neighbor 10.97.2.2 timers connect 1
"""
R2_BGP = """\
router bgp 65002
 bgp router-id 10.97.2.2
 no bgp ebgp-requires-policy
 neighbor 10.97.2.1 remote-as 65001
 neighbor 10.97.2.1 timers connect 1
 no bgp network import-check
 address-family ipv4 unicast
""" + "".join(f"  network 10.50.{number}.0/24\n" for number in range(PREFIXES))

PORT = trivium.PORT + """\
namespace = "{namespace}"
[router.{router}.port.{name}]
"""


class Lab(Network):
    """Four namespaces in a row; the devices of a router are `a` towards the generator and `b` towards the sink."""

    ROLES = ("gen", "r1", "r2", "sink")

    def _build(self) -> None:
        self.gen, self.r1, self.r2, self.sink = self.namespaces
        veth(self.gen, "g0", GEN_MAC, self.r1, "a1")
        veth(self.r1, "b1", "02:00:00:00:01:0b", self.r2, "a2")
        veth(self.sink, "s0", SINK_MAC, self.r2, "b2")
        self.r1.ip("link", "set", "a1", "address", host_mac(0).hex(":"))
        for namespace, device, address in ((self.gen, "g0", "10.97.1.2"), (self.r1, "a1", "10.97.1.1"), (self.r1, "b1", "10.97.2.1"),
                                           (self.r2, "a2", "10.97.2.2"), (self.r2, "b2", "10.97.3.1"), (self.sink, "s0", "10.97.3.2")):
            namespace.ip("addr", "add", f"{address}/24", "dev", device)
        for router in (self.r1, self.r2):
            router.sysctl("net.ipv4.ip_forward", "1")
        self.r2.shell(f"for i in $(seq 0 {PREFIXES - 1}); do ip route add 10.50.$i.0/24 via 10.97.3.2; done")
        # The sink answers nothing while it counts; the second router knows it anyway.
        self.r2.ip("neigh", "add", "10.97.3.2", "lladdr", SINK_MAC, "nud", "permanent", "dev", "b2")

    def devices(self) -> list[tuple[Namespace, str]]:
        """All devices of both routers."""
        return [(self.r1, "a1"), (self.r1, "b1"), (self.r2, "a2"), (self.r2, "b2")]


class Frr:
    """FRR's daemons in the routers, on the generator's core: they are idle while frames are counted."""

    def __init__(self, wanted: tuple[tuple[Namespace, str, dict[str, str]], ...]):
        """Of each router its namespace, its name and the configurations of its daemons; zebra comes first."""
        self.processes = []
        self.directory = RUN_DIR / "frr"
        shutil.rmtree(self.directory, ignore_errors=True)
        # They run as the user that their package makes, who must reach their directories.
        RUN_DIR.chmod(0o711)
        self.directory.mkdir(mode=0o755)
        try:
            for namespace, name, daemons in wanted:
                for daemon, configuration in {"zebra": "", **daemons}.items():
                    self._start(namespace, name, daemon, configuration)
        except BaseException:
            self.stop()
            raise

    def _start(self, namespace: Namespace, name: str, daemon: str, configuration: str) -> None:
        own = self.directory / name
        if not own.exists():
            run(["install", "-d", "-m", "755", "-o", "frr", "-g", "frr", str(own)])
        (own / f"{daemon}.conf").write_text(configuration)
        line = [str(FRR / daemon), "-f", str(own / f"{daemon}.conf"), "-i", str(own / f"{daemon}.pid"), "-z", str(own / "zserv.api"),
                "--vty_socket", str(own), "-P", "0", "--log", "stdout"]
        if daemon == "bfdd":
            line += ["--bfdctl", str(own / "bfdd.sock")]
        self.processes.append(spawn(line, cores={GENERATOR_CORE}, netns=namespace.fd, log=own / f"{daemon}.log"))
        if daemon == "zebra":
            wait_until((own / "zserv.api").exists, f"FRR's zebra in {name}", 15)

    @staticmethod
    def wait(lab: Lab) -> None:
        """Until the first router's kernel has what the second announces."""
        wait_until(lambda: len(lab.r1.ip("route", "show", "proto", "bgp").splitlines()) >= PREFIXES, f"{PREFIXES} routes by BGP", 60, 0.2)

    def stop(self) -> None:
        """Ends them, the last first."""
        for process in reversed(self.processes):
            end(process)
            shutil.rmtree(Path("/var/tmp/frr") / f"{Path(process.args[0]).name}.{process.pid}", ignore_errors=True)


class Linux:
    """The kernel forwards; its NAPI threads share the core."""

    key, title, ports = "linux", "FRR over Linux", "veth, threaded NAPI"

    def start(self, lab: Lab) -> None:
        """Receives in NAPI, which needs GRO on a veth without XDP."""
        def threads() -> None:
            for namespace, device in lab.devices():
                namespace.offloads(device, on=("gro",))
                namespace.shell(f"echo 1 > /sys/class/net/{device}/threaded")
        pin_napi_of(threads)

    def stop(self) -> None:
        """Nothing runs."""


class Trivium:
    """One daemon, one worker, two virtual routers."""

    key, title, ports = "trivium", "FRR over Trivium, worker", "veth by AF_XDP, copy mode"
    mode, extra = "busy", "hook = false\n"

    def __init__(self):
        self.daemon = trivium.Daemon(f"routers-{self.key}", self.title)

    def start(self, lab: Lab) -> None:
        """Runs it in a namespace of neither router."""
        text = ""
        for name, namespace in (("r1", lab.r1), ("r2", lab.r2)):
            text += f"\n[router.{name}]\nnamespace = \"{namespace.name}\"\n{self.extra}"
            text += "".join(PORT.format(name=device, device=device, namespace=namespace.name, router=name)
                            for owner, device in lab.devices() if owner is namespace)
        self.daemon.start(text, self.mode, frames=65536)

    def stop(self) -> None:
        """Ends the daemon."""
        self.daemon.stop()


class TriviumHook(Trivium):
    """Routes answered in the driver hook; the worker sleeps."""

    key, title, ports = "trivium-hook", "FRR over Trivium, driver hook", "veth by XDP, threaded NAPI"
    mode, extra = "adaptive", ""

    def start(self, lab: Lab) -> None:
        super().start(lab)
        # Redirected frames reach a far end that takes GRO.
        for namespace, device in ((lab.gen, "g0"), (lab.sink, "s0")):
            namespace.offloads(device, on=("gro",))

        def threads() -> None:
            for namespace, device in lab.devices():
                namespace.shell(f"echo 1 > /sys/class/net/{device}/threaded")

        pin_napi_of(threads)


PLANES = (Linux, Trivium, TriviumHook)


def measure_plane(kind, sizes: tuple[int, ...], seconds: float) -> dict:
    """One plane at all sizes: delivered frames and CPU time of both cores."""
    points = {}
    with Lab() as lab:
        plane, frr = kind(), None
        try:
            plane.start(lab)
            frr = Frr(((lab.r1, "r1", {"bgpd": R1_BGP}), (lab.r2, "r2", {"bgpd": R2_BGP})))
            frr.wait(lab)
            sink = bpf.Program("sink")
            index = lab.sink.ifindex("s0")
            with lab.sink.entered():
                sink.attach("sink", index)
            try:
                for size in sizes:
                    points[str(size)] = _point(lab, sink, size, seconds)
            finally:
                with lab.sink.entered():
                    bpf.detach(index)
                sink.close()
        finally:
            if frr:
                frr.stop()
            plane.stop()
    return points


def _point(lab: Lab, sink: bpf.Program, size: int, seconds: float) -> dict:
    frame = traffic.frame_template("0.0.0.0", "10.97.1.2", size - 4)
    before = sink.percpu_sum("delivered")
    generator = traffic.Generator(lab, FLOWS, frame=frame, targets=TARGETS)
    try:
        wait_until(lambda: sink.percpu_sum("delivered") > before + 1000, f"frames of {size} bytes at the sink", 10)
        time.sleep(0.5)
        cpu_a, delivered, offered, began = cpu.snapshot(), sink.percpu_sum("delivered"), generator.offered(), time.monotonic()
        time.sleep(seconds)
        delivered, offered = sink.percpu_sum("delivered") - delivered, generator.offered() - offered
        elapsed, used = time.monotonic() - began, cpu.usage(cpu_a, cpu.snapshot(), our_pids())
    finally:
        generator.stop()
    return {"mpps": delivered / elapsed / 1e6, "gbps": delivered * (size + 20) * 8 / elapsed / 1e9, "offered_mpps": offered / elapsed / 1e6,
            "generator_busy": used.busy[GENERATOR_CORE] / used.seconds, "busy": used.busy[PLANE_CORE] / used.seconds,
            "disturbed": used.disturbed()}


def measure(rounds: int, seconds: float, sizes: tuple[int, ...], check=lambda: None) -> dict:
    """All rounds, as they go into `bench/results/two-routers.json`; `check` comes after each round."""
    check_cores()
    missing = [str(path) for path in (FRR / "zebra", FRR / "bgpd", trivium.binary()) if not path.exists()]
    if missing:
        raise BenchError(f"missing: {', '.join(missing)}; run `make setup build`")
    with Lab() as lab:
        described = host.describe(lab.r1)
    results = {"settings": {"rounds": rounds, "seconds": seconds, "sizes": sizes}, "host": described,
               "planes": {kind.key: {"title": kind.title, "ports": kind.ports, "rounds": []} for kind in PLANES}}
    for number in range(1, rounds + 1):
        say(f"round {number}/{rounds}")
        # In turn forwards and backwards, so that neither always comes after the other.
        for kind in PLANES if number % 2 else PLANES[::-1]:
            points = measure_plane(kind, sizes, seconds)
            results["planes"][kind.key]["rounds"].append(points)
            say(f"    {kind.title}: " + " ".join(f"{size}:{p['mpps']:.2f}M" for size, p in points.items()))
        check()
    return results


def markdown(results: dict) -> str:
    """The page."""
    settings, described, found = results["settings"], results["host"], results["planes"]
    rows = []
    for size in map(str, settings["sizes"]):
        rates = {key: pick(entry["rounds"], size, "mpps") for key, entry in found.items()}
        busy = {key: pick(entry["rounds"], size, "busy") for key, entry in found.items()}
        row = [size]
        for key in found:
            row.append(f"{rates[key].median:.2f} [{rates[key].low:.2f}-{rates[key].high:.2f}], {100 * busy[key].median:.0f} %")
        rows.append([*row, *(f"{rates[key].median / rates['linux'].median:.2f}x" for key in found if key != "linux")])
    heads = ["bytes", *(f"{entry['title']}, Mpps, core {PLANE_CORE}" for entry in found.values()),
             *(f"{entry['title']} : Linux" for key, entry in found.items() if key != "linux")]
    ports = "; ".join(f"{entry['title']}: {entry['ports']}" for entry in found.values())
    return "\n".join([
        "# Two routers in a row\n",
        f"Written by `bench/two-routers`: do not edit. {described['cpu']}, {described['cpus']} CPUs, Linux {described['kernel']}, {described['date']}. "
        f"Medians of {settings['rounds']} rounds (lowest to highest in brackets), {settings['seconds']:g} s each, planes in turn. {build.line(results)}\n",
        f"```sh\nsudo bench/two-routers --rounds {settings['rounds']} --seconds {settings['seconds']:g}\n```\n",
        f"`gen` - `r1` - `r2` - `sink` in namespaces, FRR's zebra and bgpd in both routers, {PREFIXES} prefixes announced by the second to the first, "
        f"destinations in all of them. The generator has core {GENERATOR_CORE}, both routers share core {PLANE_CORE}. Ports: {ports}.\n",
        table(heads, rows),
        f"\nThe paper this repeats (NICs, DPDK, one core, 64 bytes) has {PAPER:.2f}x. A veth is not a NIC: each of the three hops of a frame costs both "
        "planes the kernel's veth work, and AF_XDP copies there.\n"])


def pages(results: dict) -> dict[str, str]:
    """The page, by file name."""
    return {"benchmarks-routers.md": markdown(results)}


def main(argv: list[str]) -> int:
    """Entry of `bench/two-routers`."""
    parser = argparse.ArgumentParser(prog="bench/two-routers", description="Writes docs/benchmarks-routers.md and bench/results/two-routers.json.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=3, help="length of each measurement (default 3)")
    parser.add_argument("--sizes", type=lambda text: tuple(int(size) for size in text.split(",")), default=SIZES, help="bytes with FCS (default all)")
    parser.add_argument("--quick", action="store_true", help="one round of one second, writes nothing")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1 or chosen.seconds <= 0 or not all(64 <= size <= 1518 for size in chosen.sizes):
        parser.error("--rounds and --seconds must be positive, --sizes from 64 to 1518")

    def job() -> None:
        if chosen.quick:
            chosen.rounds, chosen.seconds = 1, 1
        if chosen.report:
            results = build.read(Path(chosen.report))
        else:
            noted = build.begin("two-routers", argv)
            results = build.seal(measure(chosen.rounds, chosen.seconds, chosen.sizes, lambda: build.check(noted)), noted)
        if not chosen.quick:
            (ROOT / "bench/results/two-routers.json").write_text(json.dumps(results, indent=1) + "\n")
            for name, text in pages(results).items():
                (ROOT / "docs" / name).write_text(text)
        print(markdown(results))

    return cli.alone(job, needs_root=not chosen.report)
