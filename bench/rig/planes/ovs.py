"""Open vSwitch's user-space datapath, with a database and a daemon of its own (the system's service stays as it is)."""

import subprocess
from pathlib import Path

from ..lab import PLANE_CORE, Lab
from ..system import RUN_DIR, BenchError, end, run, spawn, wait_until
from .base import Plane

_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"


def database(directory: Path) -> tuple[subprocess.Popen, dict[str, str]]:
    """An empty database with a server of its own, at `db.sock` in this directory, and the environment by which OVS's programs find it."""
    run(["rm", "-rf", str(directory)])
    directory.mkdir(parents=True)
    env = {name: str(directory) for name in ("OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR")}
    run(["ovsdb-tool", "create", str(directory / "conf.db"), _SCHEMA])
    socket = directory / "db.sock"
    server = spawn(["ovsdb-server", str(directory / "conf.db"), f"--remote=punix:{socket}", f"--unixctl={directory}/ovsdb.ctl",
                    "--no-chdir", "-vsyslog:off"], env=env, log=directory / "ovsdb-server.log")
    try:
        wait_until(socket.exists, "ovsdb-server's socket")
    except BenchError:
        end(server)
        raise
    return server, env


class _Ovs(Plane):
    """A bridge with `datapath_type=netdev` and the NORMAL action."""

    work = "learning bridge (NORMAL)"
    needs = ("ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl")
    interface: tuple[str, ...] = ()
    cores: set[int] | None = None

    def __init__(self):
        self.dir = RUN_DIR / self.key
        self.database: subprocess.Popen | None = None
        self.daemon: subprocess.Popen | None = None

    def version(self) -> str:
        return run(["ovs-vswitchd", "--version"]).splitlines()[0].replace("ovs-vswitchd (Open vSwitch)", "Open vSwitch")

    def start(self, lab: Lab) -> None:
        self.database, env = database(self.dir)
        socket = self.dir / "db.sock"
        self._vsctl("--no-wait", "init")
        self._vsctl("--no-wait", "set", "Open_vSwitch", ".", f"other_config:pmd-cpu-mask={1 << PLANE_CORE:#x}")
        self.daemon = spawn(
            ["ovs-vswitchd", f"unix:{socket}", f"--unixctl={self.dir}/vswitchd.ctl", "--no-chdir", "-vsyslog:off"],
            env=env, netns=lab.dut.fd, cores=self.cores, log=self.dir / "ovs-vswitchd.log")
        self._vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=standalone",
                    "other_config:mac-table-size=65536")
        for device in ("d0", "d1"):
            self._vsctl("add-port", "br0", device, *(("--", "set", "interface", device, *self.interface)
                                                     if self.interface else ()))
            wait_until(lambda d=device: self._vsctl("get", "interface", d, "ofport").strip() not in ("[]", "-1"),
                       f"{self.title}: port {device}")

    def stop(self) -> None:
        end(self.daemon)
        end(self.database)
        self.daemon = self.database = None

    def _vsctl(self, *args: str) -> str:
        return run(["ovs-vsctl", f"--db=unix:{self.dir}/db.sock", "--timeout=10", *args])


class OvsAfXdp(_Ovs):
    """Interfaces of type `afxdp`, polled by a PMD thread on the plane's core."""

    key = "ovs-af-xdp"
    title = "OVS user space, AF_XDP"
    interface = ("type=afxdp", "options:n_rxq=1", "options:xdp-mode=best-effort")


class OvsAfPacket(_Ovs):
    """Plain interfaces over AF_PACKET: these are served by the daemon's main thread, so that is what gets the core."""

    key = "ovs-af-packet"
    title = "OVS user space, AF_PACKET"
    cores = {PLANE_CORE}
    napi_by_gro = True
