"""The kernel's own bridge."""

import platform

from ..lab import Lab
from .base import Plane


class LinuxBridge(Plane):
    """`ip link add type bridge`, two ports, default settings, netfilter hooks off."""

    key = "linux-bridge"
    title = "Linux bridge"
    group = "kernel"
    work = "learning bridge"
    needs = ("ip",)
    napi_by_gro = True

    def version(self) -> str:
        return f"Linux {platform.release()}"

    def start(self, lab: Lab) -> None:
        lab.dut.ip("link", "add", "br0", "type", "bridge")
        for device in ("d0", "d1"):
            lab.dut.ip("link", "set", device, "master", "br0")
        lab.dut.ip("link", "set", "br0", "up")

    def before_load(self, lab: Lab) -> None:
        super().before_load(lab)
        lab.pin_napi()
