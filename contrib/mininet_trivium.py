"""Trivium as a switch of Mininet (https://mininet.org, Debian's package `mininet`).

    sudo mn --custom contrib/mininet_trivium.py --switch trivium --controller remote --topo tree,2

Each switch is a daemon of its own with one bridge, whose ports take the devices that Mininet makes over AF_XDP; their numbers are Mininet's. The
binary is `trivium` of the PATH, or what the environment variable TRIVIUM names. `sh ovs-ofctl dump-flows unix:/tmp/.../s1.mgmt`
and `SWITCH dpctl dump-flows` show its rules.
"""

import os
import shutil
import subprocess
import tempfile
import time

from mininet.node import Switch

# Seconds that a daemon may take to start, or to end.
PATIENCE = 30
CONFIGURATION = """\
[daemon]
api = "{directory}/api.sock"
state_dir = "{directory}/state"
[memory]
frames = {frames}
huge_pages = "off"
[bridge.{name}.openflow]
controllers = [{controllers}]
fail_mode = "{fail_mode}"
datapath_id = "{dpid}"
"""
PORT = """\
[port.{device}]
kind = "af_xdp"
device = "{device}"
ring_size = 512
[bridge.{name}.port.{device}]
access = 1
number = {number}
"""


class TriviumSwitch(Switch):
    """A bridge that goes by OpenFlow's rules."""

    def __init__(self, name, fail_mode="secure", **params):
        super().__init__(name, **params)
        self.fail_mode = fail_mode
        self.directory = None
        self.daemon = None

    @classmethod
    def setup(cls):
        binary = os.environ.get("TRIVIUM", "trivium")
        if shutil.which(binary) is None:
            raise SystemExit(f"mininet_trivium: there is no {binary}; install it or name it in TRIVIUM")

    def start(self, controllers):
        devices = [(number, intf.name) for intf, number in self.ports.items() if intf.name != "lo"]
        self.directory = tempfile.mkdtemp(prefix=f"trivium-{self.name}-")
        targets = ", ".join(f'"tcp:{controller.IP()}:{controller.port}"' for controller in controllers)
        text = CONFIGURATION.format(
            directory=self.directory, name=self.name, controllers=targets, fail_mode=self.fail_mode,
            dpid=self.dpid, frames=4096 * (len(devices) + 1))
        for number, device in sorted(devices):
            text += PORT.format(device=device, name=self.name, number=number)
            # AF_XDP carries no state of checksums: hosts complete theirs, behind either end of a cable.
            for intf in (self.nameToIntf[device].link.intf1, self.nameToIntf[device].link.intf2):
                intf.node.cmd("ethtool", "-K", intf.name, "tx", "off", "rx", "off")
        file = os.path.join(self.directory, "trivium.toml")
        with open(file, "w", encoding="utf-8") as configuration:
            configuration.write(text)
        with open(os.path.join(self.directory, "log"), "wb") as log:
            self.daemon = subprocess.Popen(
                [os.environ.get("TRIVIUM", "trivium"), "run", "-c", file],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + PATIENCE
        while "ready:" not in self.log():
            if self.daemon.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"mininet_trivium: {self.name} did not start; it said:\n{self.log()}")
            time.sleep(0.05)

    def log(self):
        """What its daemon has printed so far."""
        with open(os.path.join(self.directory, "log"), encoding="utf-8", errors="replace") as log:
            return log.read()

    def dpctl(self, *args):
        """`ovs-ofctl COMMAND SWITCH ARGUMENTS`."""
        target = "unix:" + os.path.join(self.directory, f"{self.name}.mgmt")
        return self.cmd("ovs-ofctl", args[0], target, *args[1:])

    def stop(self, deleteIntfs=True):
        if self.daemon is not None:
            self.daemon.terminate()
            try:
                self.daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
            self.daemon = None
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
            self.directory = None
        super().stop(deleteIntfs)


# What `mn --custom` looks for.
switches = {"trivium": TriviumSwitch}
