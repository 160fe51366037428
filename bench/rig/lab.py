"""The bench's three namespaces, `gen` - `dut` - `sink`, and where the kernel does its share of the work."""

import errno
import os
import socket
import time
from pathlib import Path

from . import bpf
from .netns import Namespace, veth
from .system import BenchError, wait_until

GENERATOR_CORE = 0
PLANE_CORE = 1
GEN_MAC, SINK_MAC = "02:00:00:00:ff:01", "02:00:00:00:ff:02"
GEN_IP, SINK_IP = "10.99.0.1", "10.99.0.2"
# The generator's frames go to 02:00:00:ab:hh:hh, one MAC for each host number.
HOST_MAC_PREFIX = bytes.fromhex("020000ab")


class Network:
    """Fresh namespaces, without checks of sources, which `_build` joins; use as a context manager."""

    #: What each of them is called.
    ROLES: tuple[str, ...] = ()

    def __init__(self):
        self.namespaces: list[Namespace] = []
        try:
            for role in self.ROLES:
                self.namespaces.append(Namespace(role))
            for namespace in self.namespaces:
                for key in ("all", "default"):
                    namespace.sysctl(f"net.ipv4.conf.{key}.rp_filter", "0")
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        raise NotImplementedError

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        self.close()

    def close(self) -> None:
        """Removes the namespaces."""
        for namespace in self.namespaces:
            namespace.close()
        self.namespaces = []


class Lab(Network):
    """What one plane stands between."""

    ROLES = ("gen", "dut", "sink")

    def _build(self) -> None:
        self.gen, self.dut, self.sink = self.namespaces
        for table in ("ip", "ip6", "arp"):
            self.dut.sysctl(f"net.bridge.bridge-nf-call-{table}tables", "0")
        veth(self.gen, "g0", GEN_MAC, self.dut, "d0")
        veth(self.sink, "s0", SINK_MAC, self.dut, "d1")
        for namespace, device, own, peer, mac in ((self.gen, "g0", GEN_IP, SINK_IP, SINK_MAC),
                                                  (self.sink, "s0", SINK_IP, GEN_IP, GEN_MAC)):
            namespace.ip("addr", "add", f"{own}/24", "dev", device)
            namespace.ip("neigh", "add", peer, "lladdr", mac, "nud", "permanent", "dev", device)

    def receive_with_napi(self, on: bool) -> None:
        """Makes a plane without XDP program receive in NAPI: on a veth that takes GRO, and redirected frames need it."""
        for device in ("d0", "d1"):
            self.dut.offloads(device, on=("gro",) if on else ())

    def pin_napi(self) -> None:
        """Moves the plane's receiving NAPI into threads on the plane's core (for planes that live in the kernel).

        A device has its NAPI only while it takes GRO or has an XDP program: call it after either.
        """
        pin_napi_of(lambda: self.dut.shell("for d in d0 d1; do echo 1 > /sys/class/net/$d/threaded; done"))

    def learn_hosts(self, hosts: int) -> None:
        """Lets the plane see a frame from each host behind the sink, so that it knows where they are."""
        with self.sink.entered():
            raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        try:
            raw.bind(("s0", 0))
            for number in range(hosts):
                # Ethertype: local experimental (IEEE 802), to the generator's MAC, so that nothing is flooded.
                _send_paced(raw, bytes.fromhex(GEN_MAC.replace(":", "")) + host_mac(number) + b"\x88\xb5" + bytes(46))
                if number % 32 == 31:
                    time.sleep(0.001)  # slower than any plane, so that none of them is lost
        finally:
            raw.close()

    def pass_at_ends(self, on: bool) -> None:
        """A program that passes all at g0 and s0: a veth takes redirected frames only with one."""
        program = bpf.Program("sink") if on else None
        for namespace, device in ((self.gen, "g0"), (self.sink, "s0")):
            with namespace.entered():
                index = socket.if_nametoindex(device)
                if program:
                    program.attach("pass", index)
                else:
                    bpf.detach(index)
        if program:
            program.close()


def pin_napi_of(make) -> None:
    """Moves the NAPI threads that `make` brings about to the plane's core."""
    before = _napi_threads()
    make()
    for pid in wait_until(lambda: _napi_threads() - before, "threaded NAPI", 5):
        os.sched_setaffinity(pid, {PLANE_CORE})
        os.setpriority(os.PRIO_PROCESS, pid, -20)


def host_mac(number: int) -> bytes:
    """The MAC of a host behind the sink; the generator's program writes the same."""
    return HOST_MAC_PREFIX + number.to_bytes(2, "big")


def _send_paced(raw: socket.socket, frame: bytes) -> None:
    """Sends one frame; a veth whose far ring is full refuses for a moment."""
    for _ in range(1000):
        try:
            raw.send(frame)
            return
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise
            time.sleep(0.001)
    raise BenchError("s0: the plane took no frame for a second while it was shown the hosts")


def _napi_threads() -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "comm").read_text().startswith("napi/"):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found


def check_cores() -> None:
    """The placement needs two cores."""
    if not {GENERATOR_CORE, PLANE_CORE} <= os.sched_getaffinity(0):
        raise BenchError(f"the bench needs cores {GENERATOR_CORE} and {PLANE_CORE}; this process may use "
                         f"{sorted(os.sched_getaffinity(0))}")
