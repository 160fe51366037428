"""Network namespaces and veth devices: made for a run, known by their prefix, removed at its end.

Counters are read through descriptors that were opened inside the namespace (a socket, `/proc/net/dev`): reading them forks
nothing and disturbs no core.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from pathlib import Path

from .system import BenchError, run, set_netns

PREFIX = "trvbench-"
_SIOCETHTOOL = 0x8946
_ETHTOOL_GSSET_INFO, _ETHTOOL_GSTRINGS, _ETHTOOL_GSTATS, _ETH_SS_STATS = 0x37, 0x1B, 0x1D, 1
_GSTRING_LEN = 32
OFFLOADS = ("tx", "tso", "gso", "gro", "sg", "rxvlan", "txvlan")


class Namespace:
    """One namespace of the rig."""

    def __init__(self, role: str):
        self.name = PREFIX + role
        run(["ip", "netns", "add", self.name])
        self.fd = os.open(f"/run/netns/{self.name}", os.O_RDONLY | os.O_CLOEXEC)
        with self.entered():
            self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            # proc binds the file to the namespace of the task that opens it.
            self._devices = os.open("/proc/thread-self/net/dev", os.O_RDONLY)
        self.sysctl("net.ipv6.conf.all.disable_ipv6", "1")
        self.sysctl("net.ipv6.conf.default.disable_ipv6", "1")
        self.ip("link", "set", "lo", "up")

    @contextlib.contextmanager
    def entered(self):
        """The calling thread works inside the namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            set_netns(self.fd)
            yield
        finally:
            set_netns(home)
            os.close(home)

    def ip(self, *args: str) -> str:
        """`ip` inside the namespace."""
        return run(["ip", "-n", self.name, *args])

    def shell(self, script: str) -> str:
        """A shell with the namespace's own /sys mounted (the BPF file system is hidden there)."""
        return run(["ip", "netns", "exec", self.name, "sh", "-ec", script])

    def sysctl(self, key: str, value: str) -> None:
        """Sets a sysctl of the namespace; one that the kernel lacks is left."""
        with self.entered():
            path = Path("/proc/sys") / key.replace(".", "/")
            if path.exists():
                path.write_text(value)

    def sysctl_value(self, key: str) -> str:
        """The value of a sysctl in this namespace, `absent` when the kernel lacks it."""
        with self.entered():
            path = Path("/proc/sys") / key.replace(".", "/")
            return path.read_text().strip() if path.exists() else "absent"

    def ifindex(self, device: str) -> int:
        """The index of a device of the namespace."""
        with self.entered():
            return socket.if_nametoindex(device)

    def offloads(self, device: str, on: tuple[str, ...] = ()) -> None:
        """Switches all offloads of a device off, but for the named ones."""
        words = [w for name in OFFLOADS for w in (name, "on" if name in on else "off")]
        with self.entered():
            run(["ethtool", "-K", device, *words])

    def tx_packets(self, device: str) -> int:
        """Packets that the device has sent, from the kernel's own counters."""
        text = os.pread(self._devices, 65536, 0).decode()
        for line in text.splitlines()[2:]:
            name, _, rest = line.partition(":")
            if name.strip() == device:
                return int(rest.split()[9])
        raise BenchError(f"device {device}: gone from {self.name}")

    def ethtool_stats(self, device: str) -> dict[str, int]:
        """`ethtool -S`, without a process."""
        count = struct.unpack("I", self._ethtool(device, struct.pack("IIQI", _ETHTOOL_GSSET_INFO, 0, 1 << _ETH_SS_STATS, 0))
                              [16:20])[0]
        names = self._ethtool(device, struct.pack("III", _ETHTOOL_GSTRINGS, _ETH_SS_STATS, count)
                              + bytes(count * _GSTRING_LEN))[12:]
        values = self._ethtool(device, struct.pack("II", _ETHTOOL_GSTATS, count) + bytes(8 * count))[8:]
        return {names[i * _GSTRING_LEN:(i + 1) * _GSTRING_LEN].split(b"\0")[0].decode(): value
                for i, value in enumerate(struct.unpack(f"{count}Q", values))}

    def close(self) -> None:
        """Removes the namespace and all that is in it."""
        self._socket.close()
        os.close(self._devices)
        os.close(self.fd)
        run(["ip", "netns", "del", self.name], check=False)

    def _ethtool(self, device: str, request: bytes) -> bytes:
        buffer = ctypes.create_string_buffer(request, len(request))
        ifreq = struct.pack("16sP16x", device.encode(), ctypes.addressof(buffer))
        fcntl.ioctl(self._socket.fileno(), _SIOCETHTOOL, ifreq)
        return buffer.raw


def veth(near: Namespace, near_name: str, near_mac: str, far: Namespace, far_name: str) -> None:
    """A veth pair with one queue a side, up, with MTU 1500 and all offloads off at both ends."""
    near.ip("link", "add", near_name, "numrxqueues", "1", "numtxqueues", "1", "address", near_mac, "mtu", "1500", "type",
            "veth", "peer", "name", far_name, "numrxqueues", "1", "numtxqueues", "1", "mtu", "1500", "netns", far.name)
    for namespace, device in ((near, near_name), (far, far_name)):
        namespace.offloads(device)
        namespace.ip("link", "set", device, "up")


def remove_remnants() -> int:
    """Removes the namespaces that an earlier, killed run left."""
    try:
        left = [name for name in os.listdir("/run/netns") if name.startswith(PREFIX)]
    except FileNotFoundError:
        return 0
    for name in left:
        run(["ip", "netns", "del", name], check=False)
    return len(left)
