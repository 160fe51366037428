"""DPDK's testpmd, which only moves frames from port to port (`io`): the floor of what a user-space plane costs. And it alone
receiving (`rxonly`), beside drops in the driver hook."""

import re
import subprocess

from ..lab import GENERATOR_CORE, PLANE_CORE, Lab
from ..system import RUN_DIR, BenchError, end, run, spawn, wait_until
from .base import Plane

MEMORY_MB = 512


def eal(prefix: str, *vdevs: str) -> list[str]:
    """testpmd's start: main thread (asleep) on the generator's core, forwarding on the plane's, no huge pages, no PCI."""
    # Line by line, because the rig reads what it prints.
    return ["stdbuf", "-oL", "dpdk-testpmd", "-l", f"{GENERATOR_CORE},{PLANE_CORE}", "--main-lcore", str(GENERATOR_CORE), "--no-huge", "-m",
            str(MEMORY_MB), "--no-pci", "--no-telemetry", "--file-prefix", f"trvbench-{prefix}",
            *(word for vdev in vdevs for word in ("--vdev", vdev))]


def dpdk_version() -> str:
    """Debian's package version: testpmd itself does not tell."""
    return "DPDK " + run(["dpkg-query", "-W", "-f", "${Version}", "dpdk"], check=False)


class _Testpmd(Plane):
    work = "nothing looked up (io)"
    needs = ("dpdk-testpmd",)
    driver = ""
    options = ""
    forward = "io"
    ports = (0, 1)

    def __init__(self):
        self.process: subprocess.Popen | None = None
        self.log = RUN_DIR / f"{self.key}.log"

    def version(self) -> str:
        return dpdk_version()

    def start(self, lab: Lab) -> None:
        vdevs = [f"{self.driver}{n},iface=d{n}{self.options}" for n in self.ports]
        self.log.unlink(missing_ok=True)
        self.process = spawn(
            [*eal(self.key, *vdevs), "--", "--auto-start", f"--forward-mode={self.forward}", "--nb-cores=1", "--total-num-mbufs=16384",
             "--rxd=1024", "--txd=1024"], netns=lab.dut.fd, log=self.log, stdin=subprocess.PIPE)
        wait_until(self._forwarding, f"{self.title}: forwarding (see {self.log})", 20)

    def _forwarding(self) -> bool:
        if self.process.poll() is not None:
            raise BenchError(f"{self.title}: testpmd ended with status {self.process.returncode}; see {self.log}")
        return "Press enter to exit" in self.log.read_text(errors="replace")

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            # Enter ends it in order, so that its XDP programs and sockets go.
            try:
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()
                self.process.wait(3)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                pass  # `end` insists
        end(self.process)
        self.process = None


class TestpmdAfXdp(_Testpmd):
    """`net_af_xdp` with its busy polling off, as the placement asks: the receiving NAPI stays on the generator's core."""

    key = "testpmd-af-xdp"
    title = "testpmd io, net_af_xdp"
    driver = "net_af_xdp"
    options = ",start_queue=0,queue_count=1,busy_budget=0"


class TestpmdRxonly(TestpmdAfXdp):
    """Receives frames at `d0` and frees them."""

    key = "testpmd-rxonly"
    title = "testpmd rxonly, net_af_xdp"
    work = "nothing looked at (rxonly)"
    forward = "rxonly"
    ports = (0,)

    def received(self) -> int:
        """Frames of the whole run; after `stop`."""
        counts = re.findall(r"RX-packets: (\d+)", self.log.read_text(errors="replace"))
        if not counts:
            raise BenchError(f"{self.title}: it has not told what it received; see {self.log}")
        return int(counts[-1])


class TestpmdAfPacket(_Testpmd):
    """`net_af_packet`."""

    key = "testpmd-af-packet"
    title = "testpmd io, net_af_packet"
    driver = "net_af_packet"
    napi_by_gro = True
