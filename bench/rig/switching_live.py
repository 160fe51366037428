"""The switch between devices: the paper's rules through a worker, through the driver hook and through Open vSwitch, flows that are new with
each packet, Open vSwitch in memory, and what one more rule costs the Linux bridge."""

import os
import re
import time
from pathlib import Path

from . import traffic
from .lab import GENERATOR_CORE, PLANE_CORE, Lab
from .planes.linux_bridge import LinuxBridge
from .planes.ovs import OvsAfXdp, database
from .planes.trivium import Trivium, TriviumHook
from .session import answers
from .system import RUN_DIR, BenchError, end, run, spawn, wait_until

#: The rules of "The Design and Implementation of Open vSwitch" (NSDI 2015), section 7.2; packets meet the fourth. `{to}` is what becomes of IPv4.
PAPER = """\
priority=40,arp,actions=NORMAL
priority=30,ip,nw_dst=11.1.0.0/16,actions={to}
priority=20,tcp,nw_dst=9.1.1.1,tp_src=10,tp_dst=10,actions={to}
priority=10,ip,nw_dst=9.1.1.0/24,actions={to}
priority=0,actions=NORMAL
"""
#: Each packet with another MAC address or UDP port is a flow of its own, as what is done asks for them.
FRESH = """\
priority=10,udp,in_port=1,actions=move:NXM_OF_UDP_SRC[]->NXM_NX_REG0[0..15],move:NXM_OF_ETH_DST[]->NXM_NX_XXREG1[0..47],output:2
priority=0,actions=NORMAL
"""
DESTINATION = "9.1.1.2"
#: 67 million flows at random.
NEW = traffic.Profile("new", "67 million flows at random", 4096, 16384, True, apart=True)
#: A flow is in the hook when it was busy in one look of the slow path's, which comes twice a second.
_SETTLED_S = 2.5
#: Alternations of the rule that is there and not there.
_TURNS = 10
#: Pages of 2 MiB for Open vSwitch over DPDK.
_HUGE, _HUGE_PAGES = 256, Path("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages")
_OVS_DPDK = Path("/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk")

_BRIDGE = """
[bridge.br0]
mac_limit = 65536
hook = {hook}
[bridge.br0.openflow]
fail_mode = "secure"
[bridge.br0.port.p0]
number = 1
[bridge.br0.port.p1]
number = 2
"""


class _Rules:
    """A plane whose bridge goes by rules; `rules` puts them in the place of all others."""

    def rules(self, text: str) -> None:
        path = RUN_DIR / f"{self.key}.rules"
        path.write_text(text, encoding="ascii")
        run(["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "replace-flows", self.target(), str(path)])


class _Ours(_Rules):
    bridge = _BRIDGE

    def target(self) -> str:
        return f"unix:{RUN_DIR}/br0.mgmt"


class RulesWorker(_Ours, Trivium):
    key = "trivium-rules"
    title = "Trivium, AF_XDP"


class RulesHook(_Ours, TriviumHook):
    key = "trivium-rules-hook"
    title = "Trivium, driver hook"


class RulesOvs(_Rules, OvsAfXdp):
    key = "ovs-rules"
    title = "Open vSwitch, AF_XDP"

    def target(self) -> str:
        return f"unix:{self.dir}/br0.mgmt"


PLANES = (RulesWorker, RulesHook, RulesOvs)


def _undisturbed(measure, retries: int = 2):
    """Once more, at most twice, while the host or other processes take part of the cores."""
    load = measure()
    while load.disturbed and retries:
        time.sleep(1)
        load, retries = measure(), retries - 1
    return load


def paper(kind: type, seconds: float) -> dict:
    """Frames a second by the paper's rules, which send out of a port or to `NORMAL`."""
    plane, figures = kind(), {}
    with Lab() as lab:
        try:
            plane.start(lab)
            plane.rules(PAPER.format(to="output:2"))
            plane.before_hosts(lab)
            wait_until(lambda: answers(lab), f"{plane.title}: a ping through it", 15)
            plane.before_load(lab)
            for name, to in (("output", "output:2"), ("normal", "NORMAL")):
                plane.rules(PAPER.format(to=to))
                load = _undisturbed(lambda: traffic.full_rate(lab, traffic.FEW, seconds, destination=DESTINATION, warm_up=_SETTLED_S))
                figures |= {f"{name}_mpps": load.mpps, f"{name}_cpu_ns_core_0": load.cpu_ns[0], f"{name}_cpu_ns_core_1": load.cpu_ns[1],
                            f"{name}_disturbed": float(load.disturbed)}
        finally:
            plane.stop()
    return {"veth": {plane.title: figures}}


def fresh(kind: type, seconds: float) -> dict:
    """Packets a second when each of them is of a flow that was not there."""
    plane = kind()
    with Lab() as lab:
        try:
            plane.start(lab)
            plane.rules(FRESH)
            plane.before_hosts(lab)
            wait_until(lambda: answers(lab), f"{plane.title}: a ping through it", 15)
            plane.before_load(lab)
            load = _undisturbed(lambda: traffic.full_rate(lab, NEW, seconds, warm_up=_SETTLED_S))
        finally:
            plane.stop()
    return {"veth-upcall": {plane.title: {"upcalls_per_second": load.mpps * 1e6, "cpu_ns_core_0": load.cpu_ns[0],
                                          "cpu_ns_core_1": load.cpu_ns[1], "disturbed": float(load.disturbed)}}}


def linux_bridge(seconds: float) -> dict:
    """The Linux bridge with and without an nft rule that drops BPDUs."""
    plane, rates = LinuxBridge(), {False: [], True: []}
    with Lab() as lab:
        try:
            plane.start(lab)
            plane.before_load(lab)
            for _ in range(_TURNS):
                for with_rule in (False, True):
                    if with_rule:
                        lab.dut.shell("nft add table bridge one && nft 'add chain bridge one forward { type filter hook forward priority 0; }'"
                                      " && nft add rule bridge one forward ether daddr 01:80:c2:00:00:00 drop")
                    try:
                        rates[with_rule].append(traffic.full_rate(lab, traffic.FEW, max(1.0, seconds / 4)).mpps)
                    finally:
                        if with_rule:
                            lab.dut.shell("nft delete table bridge one")
        finally:
            plane.stop()
    without, with_rule = (sorted(rates[key])[_TURNS // 2] for key in (False, True))
    return {"one-rule-linux": {"": {"mpps_without": without, "mpps_with": with_rule, "change_percent": 100 * (without / with_rule - 1)}}}


def ovs_null(seconds: float) -> dict:
    """Open vSwitch over two of DPDK's `net_null` ports, by the paper's rules and one from each port to the other; its PMD on one core."""
    directory = RUN_DIR / "ovs-null"
    remote = f"unix:{directory}/db.sock"
    vsctl = lambda *words: run(["ovs-vsctl", f"--db={remote}", "--timeout=30", *words], timeout=40)
    control = lambda *words: run(["ovs-appctl", f"--target={directory}/vswitchd.ctl", *words])
    if not _OVS_DPDK.exists():
        raise BenchError("openvswitch-switch-dpdk is not installed; run `ci/setup bench`")
    server, names = database(directory)
    environment, daemon = dict(os.environ, **names), None
    before = int(_HUGE_PAGES.read_text(encoding="ascii"))
    try:
        # Its DPDK wants them whatever it is told.
        _HUGE_PAGES.write_text(str(before + _HUGE), encoding="ascii")
        vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", "other_config:dpdk-init=true",
              f"other_config:pmd-cpu-mask={1 << PLANE_CORE:#x}", f"other_config:dpdk-lcore-mask={1 << GENERATOR_CORE:#x}",
              "other_config:dpdk-extra=--no-pci --no-telemetry", f"other_config:dpdk-socket-mem={2 * _HUGE}")
        daemon = spawn([str(_OVS_DPDK), remote, "--no-chdir", "-vsyslog:off", f"--unixctl={directory}/vswitchd.ctl"], env=names,
                       log=directory / "ovs-vswitchd.log")
        vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure")
        for port in (1, 2):
            vsctl("add-port", "br0", f"null{port}", "--", "set", "interface", f"null{port}", "type=dpdk", f"ofport_request={port}",
                  f"options:dpdk-devargs=net_null{port},size=64")
            wait_until(lambda p=port: vsctl("get", "interface", f"null{p}", "ofport").strip() == str(p), f"Open vSwitch: net_null{port}")
        path = directory / "rules"
        path.write_text(PAPER.format(to="NORMAL").replace("priority=0,actions=NORMAL", "priority=0,in_port=1,actions=output:2\n"
                                                          "priority=0,in_port=2,actions=output:1"), encoding="ascii")
        run(["ovs-ofctl", "add-flows", "br0", str(path)], env=environment)
        time.sleep(1)
        control("dpif-netdev/pmd-stats-clear")
        began = time.monotonic()
        time.sleep(seconds)
        shown, took = control("dpif-netdev/pmd-stats-show"), time.monotonic() - began
    finally:
        end(daemon)
        end(server)
        _HUGE_PAGES.write_text(str(before), encoding="ascii")
    packets, hits = (sum(int(number) for number in re.findall(rf"{words}: (\d+)", shown)) for words in ("packets received", "emc hits"))
    if not packets:
        raise BenchError(f"Open vSwitch over net_null: no packets; see {directory}/ovs-vswitchd.log")
    return {"ovs-null": {"": {"mpps": packets / took / 1e6, "ns_per_packet": took * 1e9 / packets,
                              "exact_hit_rate": hits / packets}}}


def jobs(seconds: float) -> dict:
    """What is measured in each round, by name."""
    found = {f"veth-{kind.key}": lambda kind=kind: paper(kind, seconds) for kind in PLANES}
    found |= {f"new-{kind.key}": lambda kind=kind: fresh(kind, seconds) for kind in (RulesWorker, RulesOvs)}
    found["linux-bridge"] = lambda: linux_bridge(seconds)
    found["ovs-null"] = lambda: ovs_null(seconds)
    return found

