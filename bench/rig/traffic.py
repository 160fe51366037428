"""What is driven through a plane: 64-byte frames at full rate, ping, one TCP stream."""

import json
import os
import re
import socket
import struct
import subprocess
import time
from dataclasses import dataclass

from . import bpf, cpu
from .lab import GEN_MAC, GENERATOR_CORE, HOST_MAC_PREFIX, PLANE_CORE, SINK_IP, Lab
from .system import BenchError, end, end_forked, forked, our_pids, run, spawn, wait_until

FRAME_BYTES = 60  # 64 on the wire, with the FCS
_WARM_UP_S = 1.0
# Planes that put what they have learned somewhere else, into a cache or the driver hook, have had the time for it.
_LEARNING_S = 0.5
# Each call costs tens of ms of setup in the kernel: few, long calls keep the stream even.
_FRAMES_PER_CALL = 1 << 22


@dataclass(frozen=True)
class Profile:
    """Whom the generator's frames address. Both numbers are powers of two."""

    key: str
    title: str
    hosts: int
    flows: int
    random: bool
    #: Host and flow are drawn apart: as many kinds of frames as their product.
    apart: bool = False


FEW = Profile("few", "64 hosts, 1,024 flows", 64, 1024, False)
MANY = Profile("many", "4,096 hosts at random", 4096, 16384, True)
PROFILES = {p.key: p for p in (FEW, MANY)}


@dataclass
class Load:
    """One round of full-rate frames. Counts are frames within `seconds`."""

    seconds: float
    offered: int
    forwarded: int
    delivered: int
    mpps: float
    cpu_ns: list[float]  # busy nanoseconds per delivered frame: generator's core, plane's core
    cpu_busy: list[float]  # share of each core, 0..1
    steal: float
    foreign: float
    disturbed: bool


def frame_template(destination: str = "10.99.1.2", source: str = "10.99.1.1", size: int = FRAME_BYTES) -> bytes:
    """Ethernet, IPv4 (checksum right), UDP to port 9 without checksum, zeros: 60 bytes, or as many as wanted."""
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, size - 14, 0, 0, 64, socket.IPPROTO_UDP, 0,
                         socket.inet_aton(source), socket.inet_aton(destination))
    header = header[:10] + struct.pack("!H", ipv4_checksum(header)) + header[12:]
    ethernet = HOST_MAC_PREFIX + b"\0\0" + bytes.fromhex(GEN_MAC.replace(":", "")) + b"\x08\x00"
    udp = struct.pack("!HHHH", 1024, 9, size - 34, 0)
    return (ethernet + header + udp).ljust(size, b"\0")


def ipv4_checksum(header: bytes) -> int:
    """RFC 1071 over a header whose checksum field is zero."""
    total = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Generator:
    """The traffic source: a process on its core that spends its life inside the kernel's test run.

    With a rate (frames a second) it waits there too, so its core is never idle; `yielding` lets others on that core go first.
    With `targets`, IPv4 addresses as numbers (a power of two of them), the frame's destination, 0.0.0.0, becomes one of these.
    """

    def __init__(self, lab, profile: Profile, rate: float | None = None, destination: str = "10.99.1.2",
                 yielding: bool = False, frame: bytes | None = None, targets: list[int] | None = None):
        frame = frame or frame_template(destination)
        burst, gap, calls = pacing(rate) if rate else (64, 0, _FRAMES_PER_CALL)
        constants = struct.pack("56sIIIIIIII", frame[:56], lab.gen.ifindex("g0"), profile.hosts - 1, profile.flows - 1,
                                int(profile.random), burst, gap, len(targets or []), int(profile.apart))
        self.program = bpf.Program("gen", constants)
        if targets:
            self.program.fill("targets", targets)

        def generate() -> None:
            if yielding:
                os.setpriority(os.PRIO_PROCESS, 0, 0)
            while True:
                self.program.run_live("generate", frame, calls, burst)

        self.pid = forked(generate, cores={GENERATOR_CORE}, netns=lab.gen.fd)

    def offered(self) -> int:
        """Frames made so far."""
        return self.program.percpu_sum("offered")

    def stop(self) -> None:
        """Ends the process."""
        end_forked(self.pid)
        self.program.close()


def pacing(rate: float) -> tuple[int, int, int]:
    """Frames of a burst, nanoseconds from burst to burst, frames of a call: bursts that no veth ring (256) is short for, gaps of at
    most a tenth of a millisecond, and calls of about a second."""
    burst = max(1, min(64, round(rate * 100e-6)))
    return burst, max(1, round(burst / rate * 1e9)), max(1, round(rate / burst)) * burst


def full_rate(lab: Lab, profile: Profile, seconds: float, sink_at: tuple | None = None, destination: str = "10.99.1.2",
              warm_up: float = _WARM_UP_S) -> Load:
    """Sends frames as fast as the generator can and counts what the sink gets, after a warm-up (seconds).

    `sink_at` names another (namespace, device) to put the sink on, for the rig's own ceilings; `destination` is the frames' IPv4 address.
    """
    namespace, device = sink_at or (lab.sink, "s0")
    sink = bpf.Program("sink")
    index = namespace.ifindex(device)
    with namespace.entered():
        sink.attach("sink", index)
    try:
        if sink_at is None:
            lab.learn_hosts(profile.hosts)
            time.sleep(_LEARNING_S)
        generator = Generator(lab, profile, destination=destination)
        try:
            wait_until(lambda: sink.percpu_sum("delivered") > 1000, "frames at the sink", 10)
            time.sleep(warm_up)
            return _count(lab, generator, sink, seconds)
        finally:
            generator.stop()
    finally:
        with namespace.entered():
            bpf.detach(index)
        sink.close()


def _count(lab: Lab, generator: Generator, sink: bpf.Program, seconds: float) -> Load:
    def counts():
        return generator.offered(), lab.dut.tx_packets("d1"), sink.percpu_sum("delivered"), time.monotonic()

    cpu_a, a = cpu.snapshot(), counts()
    time.sleep(seconds)
    b, cpu_b = counts(), cpu.snapshot()
    used = cpu.usage(cpu_a, cpu_b, our_pids())
    elapsed = b[3] - a[3]
    delivered = b[2] - a[2]
    cores = (GENERATOR_CORE, PLANE_CORE)
    return Load(seconds=elapsed, offered=b[0] - a[0], forwarded=b[1] - a[1], delivered=delivered,
                mpps=delivered / elapsed / 1e6,
                cpu_ns=[used.busy[core] * 1e9 / max(delivered, 1) * elapsed / used.seconds for core in cores],
                cpu_busy=[used.busy[core] / used.seconds for core in cores],
                steal=used.steal, foreign=used.foreign, disturbed=used.disturbed())


@dataclass
class Ping:
    """Round trips through the idle plane, in microseconds."""

    sent: int
    received: int
    p50: float
    p99: float
    highest: float


def ping(lab: Lab, count: int, interval: float = 0.01) -> Ping:
    """`ping -i INTERVAL` from the generator's namespace to the sink's."""
    with lab.gen.entered():
        text = run(["taskset", "-c", str(GENERATOR_CORE), "ping", "-n", "-i", f"{interval:g}", "-c", str(count), "-W", "1",
                    SINK_IP], check=False, timeout=count * interval * 2 + 20)
    return parse_ping(text)


def parse_ping(text: str) -> Ping:
    """Reads each answer's time and the summary of iputils ping."""
    summary = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    if not summary:
        raise BenchError(f"ping: no summary in its output: {text.strip()[-200:]}")
    times = sorted(float(t) * 1000 for t in re.findall(r"time=([\d.]+) ms", text))
    if not times:
        raise BenchError("ping: no answer")
    return Ping(int(summary[1]), int(summary[2]), quantile(times, 0.5), quantile(times, 0.99), times[-1])


def quantile(ordered: list[float], q: float) -> float:
    """The nearest-rank quantile of an ordered list."""
    return ordered[min(len(ordered) - 1, max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1))]


@dataclass
class Tcp:
    """One iperf3 stream from the generator's namespace to the sink's."""

    gbps: float
    retransmits: int
    cpu_busy: list[float]
    steal: float
    foreign: float
    disturbed: bool


def tcp(lab: Lab, seconds: float) -> Tcp:
    """Both ends on the generator's core, so that the plane has its own."""
    server = spawn(["iperf3", "-s", "-1", "-p", "5201"], cores={GENERATOR_CORE}, netns=lab.sink.fd)
    try:
        with lab.sink.entered():
            wait_until(lambda: ":5201 " in run(["ss", "-Hltn"]) + " ", "iperf3's server listening", 5)
        client = spawn(["iperf3", "-c", SINK_IP, "-p", "5201", "-t", str(max(1, round(seconds))), "-O", "1", "-J",
                        "--connect-timeout", "3000"], cores={GENERATOR_CORE}, netns=lab.gen.fd, stdout=subprocess.PIPE)
        try:
            a = cpu.snapshot()
            text = client.communicate(timeout=seconds + 20)[0]
            used = cpu.usage(a, cpu.snapshot(), our_pids())
        except subprocess.TimeoutExpired:
            raise BenchError("iperf3: did not end in time") from None
        finally:
            end(client)
    finally:
        end(server)
    gbps, retransmits = parse_iperf3(text)
    return Tcp(gbps, retransmits, [used.busy[core] / used.seconds for core in (GENERATOR_CORE, PLANE_CORE)],
               used.steal, used.foreign, used.disturbed())


def parse_iperf3(text: str | bytes) -> tuple[float, int]:
    """Received Gbit/s and retransmissions from iperf3's JSON."""
    try:
        result = json.loads(text)
    except ValueError:
        raise BenchError(f"iperf3: its output is no JSON: {text[:200]!r}") from None
    if "error" in result:
        raise BenchError(f"iperf3: {result['error']}")
    return (result["end"]["sum_received"]["bits_per_second"] / 1e9, int(result["end"]["sum_sent"].get("retransmits", 0)))
