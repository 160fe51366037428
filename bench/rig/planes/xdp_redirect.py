"""The ceiling between kernel devices: an XDP program that redirects all frames to the other device."""

import platform

from .. import bpf
from ..lab import Lab
from .base import Plane


class XdpRedirect(Plane):
    """Devmap redirect both ways, no look-up in the frame."""

    key = "xdp-redirect"
    title = "plain XDP redirect (ceiling)"
    group = "kernel"
    work = "nothing looked up"
    needs = ("clang",)

    def __init__(self):
        self.program: bpf.Program | None = None

    def version(self) -> str:
        return f"Linux {platform.release()}"

    def start(self, lab: Lab) -> None:
        self.program = bpf.Program("redirect")
        indexes = [lab.dut.ifindex(device) for device in ("d0", "d1")]
        with lab.dut.entered():
            for here, there in (indexes, indexes[::-1]):
                self.program.set_u32("out", here & 63, there)
                self.program.attach("redirect", here)
        lab.pass_at_ends(True)
        lab.pin_napi()

    def before_load(self, lab: Lab) -> None:
        lab.pass_at_ends(False)

    def before_hosts(self, lab: Lab) -> None:
        lab.pass_at_ends(True)

    def stop(self) -> None:
        if self.program:
            self.program.close()
            self.program = None
