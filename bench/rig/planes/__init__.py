"""The data planes under comparison, one file for each family; `ALL` lists them in the report's order."""

from .base import Plane
from .linux_bridge import LinuxBridge
from .ovs import OvsAfPacket, OvsAfXdp
from .testpmd import TestpmdAfPacket, TestpmdAfXdp
from .trivium import Trivium, TriviumAdaptive, TriviumHook
from .xdp_redirect import XdpRedirect

ALL: tuple[type[Plane], ...] = (Trivium, TriviumAdaptive, OvsAfXdp, TestpmdAfXdp, OvsAfPacket, TestpmdAfPacket, TriviumHook,
                                LinuxBridge, XdpRedirect)

__all__ = ["ALL", "Plane"]
