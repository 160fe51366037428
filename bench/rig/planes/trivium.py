"""Ours: a bridge of two AF_XDP ports, from a configuration file, on one worker."""

import dataclasses
import os
import subprocess
import time
from pathlib import Path

from .. import traffic
from ..lab import PLANE_CORE, Lab
from ..system import RUN_DIR, BenchError, end, run, spawn, wait_until
from .base import Plane

ROOT = Path(__file__).resolve().parents[3]
# How long the idle daemon's CPU time is counted, and pings with a second of silence before each.
IDLE_SECONDS, IDLE_PINGS = 5, 10

# Nothing of it may outlive the round: sockets and state lie in the rig's directory, the ports do not persist.
HEAD = """\
[daemon]
api = "{dir}/trivium.sock"
state_dir = "{dir}/trivium-state"

[engine]
workers = [{core}]
mode = "{mode}"

[memory]
frames = {frames}
"""
PORT = """
[port.{name}]
kind = "af_xdp"
device = "{device}"
persist = false
"""
BRIDGE = """
[bridge.br0]
mac_limit = 65536
hook = {hook}
[bridge.br0.port.p0]
[bridge.br0.port.p1]
"""


def binary() -> Path:
    """The release build that `make build` leaves."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "trivium"


class Daemon:
    """`trivium run` as a process of the rig."""

    def __init__(self, key: str, title: str):
        self.title = title
        self.process: subprocess.Popen | None = None
        self.config, self.log = RUN_DIR / f"{key}.toml", RUN_DIR / f"{key}.log"

    def start(self, objects: str, mode: str, netns: int | None = None, frames: int = 32768) -> None:
        """Starts it with these objects, one worker on the plane's core, and waits until it says that all of them are there."""
        self.config.write_text(HEAD.format(core=PLANE_CORE, mode=mode, dir=RUN_DIR, frames=frames) + objects)
        self.log.unlink(missing_ok=True)
        self.process = spawn([str(binary()), "run", "-c", str(self.config)], netns=netns, log=self.log)
        wait_until(self._ready, f"{self.title} (see {self.log})", 60)

    def _ready(self) -> bool:
        text = self.log.read_text(errors="replace")
        if self.process.poll() is not None:
            raise BenchError(f"{self.title}: ended with status {self.process.returncode}: {' / '.join(text.strip().splitlines()[-3:])}")
        return "ready: " in text

    def stop(self) -> None:
        """Ends it."""
        end(self.process, grace=10)
        self.process = None


def missing() -> str | None:
    """Why there is nothing to start."""
    return None if binary().exists() else f"{binary()} is not built; run `make build`"


class Trivium(Plane):
    """`trivium run -c FILE`, polling always, as its peers in this group do."""

    key = "trivium"
    title = "Trivium, AF_XDP"
    work = "learning bridge"
    mode = "busy"
    #: Whether known unicast is answered in the driver hook: then no worker sees it.
    hook = "false"
    #: The bridge, as the configuration has it.
    bridge = BRIDGE

    def __init__(self):
        self.daemon = Daemon(self.key, self.title)

    def missing(self) -> str | None:
        return missing()

    def version(self) -> str:
        commit = run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], check=False).strip()
        return f"{run([str(binary()), '--version'], check=False).strip()} ({commit})"

    def start(self, lab: Lab) -> None:
        ports = "".join(PORT.format(name=f"p{n}", device=f"d{n}") for n in (0, 1))
        self.daemon.start(ports + self.bridge.format(hook=self.hook), self.mode, lab.dut.fd)
        wait_until(lambda: _has_program(lab), f"{self.title}: its ports (see {self.daemon.log})")

    def figures(self, lab: Lab) -> dict:
        # Frame memory is a memfd, so it counts as shared; the target is for the rest.
        status = dict(line.split(":", 1) for line in Path(f"/proc/{self.daemon.process.pid}/status").read_text().splitlines())
        anonymous, files, shared = (int(status[f"Rss{kind}"].split()[0]) / 1024 for kind in ("Anon", "File", "Shmem"))
        return {"memory": {"own_mib": anonymous + files, "frames_mib": shared}}

    def stop(self) -> None:
        self.daemon.stop()


class TriviumAdaptive(Trivium):
    """The same in its default mode, which sleeps while nothing arrives."""

    key = "trivium-adaptive"
    title = "Trivium, AF_XDP, adaptive"
    mode = "adaptive"

    def figures(self, lab: Lab) -> dict:
        # Nothing has come for a moment by now: the workers sleep.
        time.sleep(1)
        before, began = _cpu_ns(self.daemon.process.pid), time.monotonic()
        time.sleep(IDLE_SECONDS)
        used, seconds = _cpu_ns(self.daemon.process.pid) - before, time.monotonic() - began
        waking = traffic.ping(lab, IDLE_PINGS, interval=1)
        return super().figures(lab) | {"idle": {"cpu_percent": used / seconds / 1e7, "seconds": seconds,
                                                "ping": dataclasses.asdict(waking)}}


class TriviumHook(Trivium):
    """The bridge answered in the driver hook; workers learn, flood, and sleep."""

    key = "trivium-hook"
    title = "Trivium, driver hook"
    group = "kernel"
    mode = "adaptive"
    hook = "true"

    def start(self, lab: Lab) -> None:
        lab.pass_at_ends(True)
        super().start(lab)
        lab.pin_napi()

    def before_load(self, lab: Lab) -> None:
        # Redirected frames reach a far end that takes GRO, whether or not the sink's program stands there.
        for namespace, device in ((lab.gen, "g0"), (lab.sink, "s0")):
            namespace.offloads(device, on=("gro",))
        lab.pass_at_ends(False)

    def before_hosts(self, lab: Lab) -> None:
        lab.pass_at_ends(True)


def _cpu_ns(pid: int) -> int:
    """CPU time of a process: its threads' own counts, since ticks of 10 ms miss what is short."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def _has_program(lab: Lab) -> bool:
    return all("xdp" in lab.dut.ip("link", "show", device) for device in ("d0", "d1"))
