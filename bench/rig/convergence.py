"""`bench/convergence`: how long packets are lost when the better of two ways fails, by the kernel's forwarding and by ours.

```
                   .-- cable x: a bridge in a namespace of its own --.
  gen -- a1   r1 --+                                                 +-- r2   b2 -- sink
                   '-- y: a veth ------------------------------------'
```

FRR's zebra, ospfd and bfdd run in both routers; a stream of numbered packets goes from `gen` to `sink`. Cable x is cut in two ways: its
end at r1 goes down, which r1's device sees as a lost carrier; or it stops to carry frames while both devices stay up.
"""

import argparse
import contextlib
import json
import mmap
import socket
import struct
import threading
import time

from . import build, cli, host
from .lab import GEN_MAC, GENERATOR_CORE, SINK_MAC, Network, check_cores
from .netns import Namespace, veth
from .planes import trivium
from .report import table
from .routers import FRR, ROOT, Frr, Linux, Trivium, TriviumHook
from .session import say
from .stats import pick
from .system import BenchError, end_forked, forked, run, wait_until

PLANES = (Linux, Trivium, TriviumHook)
FAILURES = {"carrier": "the carrier is lost", "silent": "frames are lost, both ends stay up (BFD, 3 x 100 ms)"}
NETWORK, SINK_IP, PORT = "10.97.9.0/24", "10.97.9.2", 9
# Seconds of the stream before a failure and behind it.
BEFORE, AFTER = 1.0, 3.0
# Between a repair and the next failure: adjacencies, and timers that count from the last change.
REST = 2.0
# linux/rtnetlink.h, asm-generic/socket.h.
_RTM_NEWROUTE, _RTMGRP_IPV4_ROUTE, _RTA_DST, _SO_TIMESTAMPNS = 24, 0x40, 1, 35

OSPF = """\
{interfaces}router ospf
 ospf router-id 10.97.255.{id}
 timers throttle spf 0 50 500
 timers throttle lsa all 0
 timers lsa min-arrival 0
 passive-interface {passive}
"""
INTERFACE = """\
interface {device}
 ip ospf area 0
 ip ospf network point-to-point
 ip ospf hello-interval 1
 ip ospf dead-interval 10
 ip ospf cost {cost}
 ip ospf bfd
 ip ospf bfd profile quick
"""
PASSIVE = "interface {device}\n ip ospf area 0\n"
BFD = """\
bfd
 profile quick
  transmit-interval 100
  receive-interval 100
  detect-multiplier 3
"""


class Lab(Network):
    """The namespaces, without routes: those are OSPF's."""

    ROLES = ("gen", "r1", "cable", "r2", "sink")

    def _build(self) -> None:
        self.gen, self.r1, self.cable, self.r2, self.sink = self.namespaces
        for name in ("ip", "ip6", "arp"):
            self.cable.sysctl(f"net.bridge.bridge-nf-call-{name}tables", "0")
        veth(self.gen, "g0", GEN_MAC, self.r1, "a1")
        veth(self.r1, "x1", "02:00:00:00:01:01", self.cable, "m1")
        veth(self.r2, "x2", "02:00:00:00:02:01", self.cable, "m2")
        veth(self.r1, "y1", "02:00:00:00:01:02", self.r2, "y2")
        veth(self.sink, "s0", SINK_MAC, self.r2, "b2")
        self.cable.ip("link", "add", "cable", "type", "bridge")
        self.cable.ip("link", "set", "cable", "up")
        for device in ("m1", "m2"):
            self.cable.ip("link", "set", device, "master", "cable")
            # What is redirected by a hook reaches a far end that takes GRO.
            self.cable.offloads(device, on=("gro",))
        for namespace, device, address in ((self.gen, "g0", "10.97.1.2"), (self.r1, "a1", "10.97.1.1"), (self.r1, "x1", "10.97.2.1"),
                                           (self.r2, "x2", "10.97.2.2"), (self.r1, "y1", "10.97.3.1"), (self.r2, "y2", "10.97.3.2"),
                                           (self.r2, "b2", "10.97.9.1"), (self.sink, "s0", SINK_IP)):
            namespace.ip("addr", "add", f"{address}/24", "dev", device)
        for router in (self.r1, self.r2):
            router.sysctl("net.ipv4.ip_forward", "1")
        self.gen.ip("route", "add", "default", "via", "10.97.1.1")
        self.sink.ip("route", "add", "default", "via", "10.97.9.1")

    def devices(self) -> list[tuple[Namespace, str]]:
        """All devices of both routers."""
        return [(self.r1, "a1"), (self.r1, "x1"), (self.r1, "y1"), (self.r2, "x2"), (self.r2, "y2"), (self.r2, "b2")]

    def frr(self) -> Frr:
        """Starts FRR in both routers: way x is better."""
        def ospf(number: int, passive: str) -> str:
            ways = INTERFACE.format(device=f"x{number}", cost=10) + INTERFACE.format(device=f"y{number}", cost=100)
            return OSPF.format(interfaces=ways + PASSIVE.format(device=passive), id=number, passive=passive)
        return Frr(((self.r1, "r1", {"bfdd": BFD, "ospfd": ospf(1, "a1")}), (self.r2, "r2", {"bfdd": BFD, "ospfd": ospf(2, "b2")})))

    def goes_by(self, device: str) -> bool:
        """Whether the first router's route to the sink leaves by a device, and that alone."""
        route = self.r1.ip("route", "show", NETWORK)
        return f"dev {device}" in route and route.count("dev ") == 1

    def fail(self, failure: str) -> None:
        """Cuts cable x."""
        self.cable.ip("link", "set", "m1", *(("down",) if failure == "carrier" else ("nomaster",)))

    def repair(self) -> None:
        """Mends it, however it was cut."""
        self.cable.ip("link", "set", "m1", "master", "cable")
        self.cable.ip("link", "set", "m1", "up")


class Stream:
    """Numbered packets at a steady rate; the kernel's time stamps of those that arrive."""

    def __init__(self, lab: Lab, rate: int, seconds: float):
        self.rate, most = rate, int(rate * seconds)
        # Shared with both children: how many were sent, and when each arrived (ns since the epoch; 0: not).
        self._sent, self._arrived = mmap.mmap(-1, 8), mmap.mmap(-1, 8 * most)
        self.sent, self.arrived = memoryview(self._sent).cast("Q"), memoryview(self._arrived).cast("Q")
        self._receiver = forked(self._receive, cores={GENERATOR_CORE}, netns=lab.sink.fd)
        self._sender = forked(lambda: self._send(most), cores={GENERATOR_CORE}, netns=lab.gen.fd)

    def _send(self, most: int) -> None:
        # Not connected: what routers answer about packets is nothing to it.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            begin, number = time.monotonic(), 0
            while number < most:
                due = min(most, int((time.monotonic() - begin) * self.rate))
                for number in range(number, due):
                    with contextlib.suppress(OSError):
                        out.sendto(struct.pack("=Q", number), (SINK_IP, PORT))
                    self.sent[0] = number + 1
                number = due
                time.sleep(0.5 / self.rate)

    def _receive(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as at:
            at.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            at.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
            at.bind((SINK_IP, PORT))
            while True:
                data, more, *_ = at.recvmsg(64, 64)
                seconds, ns = struct.unpack("=qq", more[0][2])
                self.arrived[struct.unpack("=Q", data)[0]] = seconds * 10 ** 9 + ns

    def stop(self) -> list[int]:
        """Ends it; when each packet that was sent arrived."""
        end_forked(self._sender)
        # What is under way arrives.
        time.sleep(0.2)
        end_forked(self._receiver)
        arrived = self.arrived[:self.sent[0]].tolist()
        for view in (self.sent, self.arrived):
            view.release()
        self._sent.close()
        self._arrived.close()
        return arrived


def outcome(arrived: list[int], rate: int, failed: int, ended: int, told: int | None) -> dict:
    """What a failure after a moment did to a stream (ns since the epoch; 0: never arrived): the longest silence in ms behind that moment and
    before it, packets lost, ms from the last packet to the kernel's telling of the new route, and from there to the next packet."""
    times = sorted(at for at in arrived if at)
    # What is under way is no loss yet.
    if not times or times[-1] < ended - 10 ** 8:
        raise BenchError("the stream has not come back after a failure; is the machine so busy that BFD loses both ways?")
    silences = [(b - a, a) for a, b in zip(times, times[1:])]
    # One that had begun before by less than a packet's time is the failure's.
    begun = failed - 2 * 10 ** 9 // rate
    silence, last = max(((silence, a) for silence, a in silences if a >= begun), default=(0, failed))
    found = {"silence_ms": silence / 1e6,
             "quiet_ms": max((silence for silence, a in silences if a < begun), default=0) / 1e6,
             "lost": arrived.count(0), "sent": len(arrived)}
    behind = [at for at in times if told and at > told]
    if behind:
        found["told_ms"], found["next_ms"] = (told - last) / 1e6, (behind[0] - told) / 1e6
    return found


class Watch:
    """Hears of the first router's routes as its kernel tells them."""

    def __init__(self, namespace: Namespace):
        with namespace.entered():
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            self._socket.bind((0, _RTMGRP_IPV4_ROUTE))
        self._socket.settimeout(0.2)
        self.told: int | None = None
        self._is_open = True
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        wanted = socket.inet_aton(NETWORK.partition("/")[0])
        while self._is_open:
            with contextlib.suppress(TimeoutError):
                data, now = self._socket.recv(65536), time.time_ns()
                if self.told is None and any(to == wanted for to in new_routes(data)):
                    self.told = now

    def stop(self) -> int | None:
        """When the first new route to the sink was told (ns since the epoch)."""
        self._is_open = False
        self._thread.join()
        self._socket.close()
        return self.told


def new_routes(data: bytes):
    """The destinations of the IPv4 routes that netlink messages announce."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, at)
        # struct rtmsg has 12 bytes, attributes follow.
        attribute, last = at + 28, min(at + length, len(data))
        while kind == _RTM_NEWROUTE and attribute + 4 <= last:
            size, name = struct.unpack_from("=HH", data, attribute)
            if name == _RTA_DST:
                yield data[attribute + 4:attribute + size]
            attribute += max(4, size + 3 & ~3)
        at += max(16, length + 3 & ~3)


def measure_plane(kind, events: int, rate: int) -> list[dict]:
    """So many failures of each kind over one plane."""
    rounds = []
    with Lab() as lab:
        plane, frr = kind(), None
        try:
            plane.start(lab)
            frr = lab.frr()
            wait_until(lambda: lab.goes_by("x1"), "a route by the better way", 60, 0.2)
            for _ in range(events):
                rounds.append({failure: _event(lab, failure, rate) for failure in FAILURES})
        finally:
            if frr:
                frr.stop()
            plane.stop()
    return rounds


def _event(lab: Lab, failure: str, rate: int) -> dict:
    # The addresses of neighbours are known on both ways, as among routers that talk to each other.
    for via in ("10.97.2.2", "10.97.3.2"):
        with lab.r1.entered():
            run(["ping", "-n", "-c", "1", "-W", "2", via], check=False)
    time.sleep(REST)
    stream = Stream(lab, rate, BEFORE + AFTER + 5)
    try:
        time.sleep(BEFORE)
        watch, failed = Watch(lab.r1), time.time_ns()
        lab.fail(failure)
        time.sleep(AFTER)
        told, ended = watch.stop(), time.time_ns()
    finally:
        arrived = stream.stop()
        lab.repair()
    found = outcome(arrived, rate, failed, ended, told)
    wait_until(lambda: lab.goes_by("x1"), "the better way again", 60, 0.2)
    return found


def measure(rounds: int, events: int, rate: int, check=lambda: None) -> dict:
    """All rounds, as they go into `bench/results/convergence.json`; `check` comes after each round."""
    check_cores()
    missing = [str(path) for path in (*(FRR / name for name in ("zebra", "ospfd", "bfdd")), trivium.binary()) if not path.exists()]
    if missing:
        raise BenchError(f"missing: {', '.join(missing)}; run `make setup build`")
    with Lab() as lab:
        described = host.describe(lab.r1)
    results = {"settings": {"rounds": rounds, "events": events, "rate": rate}, "host": described,
               "planes": {kind.key: {"title": kind.title, "rounds": []} for kind in PLANES}}
    for number in range(1, rounds + 1):
        say(f"round {number}/{rounds}")
        for kind in PLANES if number % 2 else PLANES[::-1]:
            found = measure_plane(kind, events, rate)
            results["planes"][kind.key]["rounds"] += found
            for each in found:
                say(f"    {kind.title}: " + ", ".join(f"{name} {e['silence_ms']:.1f} ms, {e['lost']} lost" for name, e in each.items()))
        check()
    return results


def markdown(results: dict) -> str:
    """The page."""
    settings, described = results["settings"], results["host"]
    rows = []
    for failure, title in FAILURES.items():
        for entry in results["planes"].values():
            def shown(name: str, digits: int) -> str:
                found = pick(entry["rounds"], failure, name)
                return f"{found.median:.{digits}f} [{found.low:.{digits}f}-{found.high:.{digits}f}]" if found else "-"
            rows.append([title, entry["title"], shown("silence_ms", 1), shown("lost", 0), shown("told_ms", 1), shown("next_ms", 2),
                         shown("quiet_ms", 1)])
    count = settings["rounds"] * settings["events"]
    return "\n".join([
        "# When a way fails\n",
        f"Written by `bench/convergence`: do not edit. {described['cpu']}, {described['cpus']} CPUs, Linux {described['kernel']}, {described['date']}. "
        f"Medians of {count} failures of each kind (lowest to highest in brackets), planes in turn. {build.line(results)}\n",
        f"```sh\nsudo bench/convergence --rounds {settings['rounds']} --events {settings['events']} --rate {settings['rate']}\n```\n",
        f"Two routers with two ways between them, FRR's zebra, ospfd and bfdd above both, {settings['rate']:,} packets a second from one side to the "
        "other. The better way is cut behind the first router's device. FRR is the same for all planes: it finds out, and tells the kernel; Trivium "
        "hears of it from the kernel.\n",
        table(["failure", "who forwards", "longest silence, ms", "packets lost", "from the last packet until the kernel has told of the new route, ms",
               "from there to the next packet, ms", "longest silence before the failure, ms"], rows),
        "\nTimes are those of the sink's kernel; when the new route is told is when a listener in Python reads of it, later than Trivium, which may have "
        "sent packets by it before. Where the stream stalled for longer some time after the failure, that silence stands here, with a time before zero until "
        "the kernel's word. All is on one machine, FRR, the stream and its ends on one core, so that the longest silence before the failure is what others cost.\n"])


def pages(results: dict) -> dict[str, str]:
    """The page, by file name."""
    return {"benchmarks-convergence.md": markdown(results)}


def main(argv: list[str]) -> int:
    """Entry of `bench/convergence`."""
    parser = argparse.ArgumentParser(prog="bench/convergence", description="Writes docs/benchmarks-convergence.md and bench/results/convergence.json.")
    parser.add_argument("--rounds", type=int, default=2, help="rounds over all planes (default 2)")
    parser.add_argument("--events", type=int, default=3, help="failures of each kind in a round (default 3)")
    parser.add_argument("--rate", type=int, default=10_000, help="packets a second (default 10000)")
    parser.add_argument("--quick", action="store_true", help="one failure of each kind, writes nothing")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    if min(chosen.rounds, chosen.events) < 1 or not 100 <= chosen.rate <= 100_000:
        parser.error("--rounds and --events must be positive, --rate from 100 to 100000")

    def job() -> None:
        if chosen.quick:
            chosen.rounds, chosen.events = 1, 1
        if chosen.report:
            results = build.read(Path(chosen.report))
        else:
            noted = build.begin("convergence", argv)
            results = build.seal(measure(chosen.rounds, chosen.events, chosen.rate, lambda: build.check(noted)), noted)
        if not chosen.quick:
            (ROOT / "bench/results/convergence.json").write_text(json.dumps(results, indent=1) + "\n")
            for name, text in pages(results).items():
                (ROOT / "docs" / name).write_text(text)
        print(markdown(results))

    return cli.alone(job, needs_root=not chosen.report)
