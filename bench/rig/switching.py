"""`bench/switch`: what the switch's caches and tables do, in memory (`trivium bench`) and between devices; and Open vSwitch where both can be
asked the same: packets by the same rules, changes of rules by the stock `ovs-ofctl`, and memory of cached flows."""

import argparse
import copy
import json
import os
import platform
import random
import socket
import time
from pathlib import Path
from statistics import median

from . import build as builds
from . import switching_live as live
from .cli import ROOT, alone
from .lab import check_cores
from .planes.ovs import database
from .planes.trivium import binary
from .session import say
from .system import RUN_DIR, BenchError, end, run, spawn, wait_until

#: Scenarios, and how long each takes.
PACKETS = ["emc"] + [f"megaflow-{masks}{exact}" for exact in ("", "-exact") for masks in (1, 5, 10, 20, 30)]
TABLES = ["classifier-500k", "upcall", "upcall-15", "revalidate-200k", "production", "one-rule", "flow-mods",
          "paper-table1", "paper-table2", "paper-null", "flow-memory-100k", "tuple-explosion"]
#: What is wanted: scenario, row (None: every row, of which the worst decides), figure, how it is to be compared, the value, in words. Rates
#: include the source; costs in nanoseconds leave it aside.
WANTED = [
    ("emc", "", "ns_per_packet", "<=", 30, "`emc`: at most 30 ns a packet"),
    ("megaflow-5", "", "mpps", ">=", 12, "`megaflow-5`: at least 12 Mpps, source included"),
    ("megaflow-5", "", "ns_per_packet", "<=", 1000 / 12, "the same, source aside: at most 83.3 ns a packet"),
    ("classifier-500k", "few keys", "ns_per_lookup", "<=", 100, "`classifier-500k`, few keys: at least 10 M a second"),
    ("classifier-500k", "few keys, tracked", "ns_per_lookup", "<=", 285, "the same, tracked: at least 3.5 M"),
    ("classifier-500k", "fresh keys", "ns_per_lookup", "<=", 333, "fresh keys: at least 3 M"),
    ("classifier-500k", "fresh keys, tracked", "ns_per_lookup", "<=", 833, "the same, tracked: at least 1.2 M"),
    ("upcall", "", "upcalls_per_second", ">=", 400_000, "`upcall`: at least 400,000 a second"),
    ("upcall-15", "", "upcalls_per_second", ">=", 400_000, "the same through 15 tables"),
    ("revalidate-200k", None, "seconds_of_a_round", "<", 1, "`revalidate-200k`: under 1 s"),
    ("revalidate-200k", None, "p50_ratio", "<=", 2, "new flows meanwhile: median at most doubled"),
    ("revalidate-200k", None, "p99_ratio", "<=", 2, "new flows meanwhile: 99th percentile at most doubled"),
    ("production", "", "hit_rate", ">=", 0.97, "`production`: at least 97 % of packets hit"),
    ("one-rule", "", "change_percent", "<", 3, "`one-rule`: under 3 %"),
    ("flow-mods", "", "flow_mods_per_second", ">=", 100_000, "`flow-mods`: at least 100,000 a second"),
    ("ofctl", "Trivium", "flow_mods_per_second", ">=", 100_000, "the same by `ovs-ofctl --bundle`"),
    ("paper-table1", "all", "flows", "<=", 20, "table 1, all: at most 20 flows"),
    ("paper-table1", "no optimisation", "flows", ">=", 200_000, "table 1, none: hundreds of thousands"),
    ("tuple-explosion", "by a port of its own", "rate_kept", ">=", 0.8, "`tuple-explosion`: victims keep at least 80 % of their rate"),
    ("tuple-explosion", "by the victims' port", "rate_kept", ">=", 0.8, "the same, attacked by their own port"),
    ("veth-upcall", live.RulesWorker.title, "upcalls_per_second", ">=", 100_000, "new flows over AF_XDP on veth: at least 100,000 a second"),
]
#: Our figure and Open vSwitch's (scenario, row), which figures (the worst decides), how many times theirs ours is to be, in words.
RATIOS = [
    (("veth", live.RulesWorker.title), ("veth", live.RulesOvs.title), ("output_mpps", "normal_mpps"), 1.2,
     "the paper's rules on veth, a worker over AF_XDP: at least 1.2 times Open vSwitch"),
    (("veth", live.RulesHook.title), ("veth", live.RulesOvs.title), ("output_mpps", "normal_mpps"), 2,
     "the same in the driver hook: at least 2 times"),
    (("veth-upcall", live.RulesWorker.title), ("veth-upcall", live.RulesOvs.title), ("upcalls_per_second",), 1,
     "new flows over AF_XDP on veth: at least Open vSwitch's rate"),
    (("paper-null", ""), ("ovs-null", ""), ("mpps",), 2, "the same rules in memory (`paper-null`): at least 2 times Open vSwitch over `net_null`"),
]
#: Flows that are weighed, rules that are added.
FLOWS = RULES = 100_000
_CONFIG = """\
[daemon]
api = "{dir}/trivium.sock"
state_dir = "{dir}/trivium-state"

[engine]
workers = [1]

[memory]
frames = 8192

[bridge.br0.openflow]
fail_mode = "secure"
"""


def trivium(scenario: str, seconds: float) -> dict:
    """One run of `trivium bench`; figures by row."""
    text = run([str(binary()), "bench", scenario, "--json", "--seconds", str(seconds)], timeout=seconds * 20 + 120)
    try:
        return by_row(json.loads(text.strip().splitlines()[-1]))
    except (IndexError, ValueError):
        raise BenchError(f"trivium bench {scenario}: its last line is no JSON: {text[-200:]}") from None


def by_row(report: dict) -> dict:
    """The figures of each row of a report; of its only one under the empty name."""
    rows = report.get("rows", [report])
    numbers = lambda row: {name: value for name, value in row.items() if isinstance(value, (int, float))}
    return {row.get("row", ""): numbers(row) for row in rows}


def rules_file(path: Path) -> None:
    """A hundred thousand rules, as `ovs-ofctl add-flows` reads them."""
    with path.open("w", encoding="ascii") as out:
        for number in range(RULES):
            octets = f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
            out.write(f"priority=10,ip,nw_dst=10.{octets},actions=output:2\n")


def frame(number: int) -> str:
    """A UDP packet to a destination of its own, in hexadecimal."""
    octets = f"{number >> 16 & 255:02x}{number >> 8 & 255:02x}{number & 255:02x}"
    return ("020000000002" "020000000001" "0800" "4500002e" "00000000" "4011" "0000" "0a000001" f"0a{octets}"
            "04000009" "001a0000" + "00" * 18)


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return 1024 * int(line.split()[1])
    raise BenchError(f"process {pid} has ended")


def add_flows(target: str, environment: dict | None = None) -> dict:
    """Changes a second by one bundle of the stock client."""
    path = RUN_DIR / "rules.txt"
    rules_file(path)
    begin = time.monotonic()
    run(["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows", target, str(path)], timeout=120,
        env=environment and dict(os.environ, **environment))
    return {"flow_mods_per_second": RULES / (time.monotonic() - begin)}


def trivium_rules() -> dict:
    """The daemon, with a bridge that has no ports."""
    config, log = RUN_DIR / "switch.toml", RUN_DIR / "switch.log"
    config.write_text(_CONFIG.format(dir=RUN_DIR), encoding="ascii")
    log.unlink(missing_ok=True)
    process = spawn([str(binary()), "run", "-c", str(config)], log=log)
    try:
        wait_until(lambda: "ready: " in log.read_text(errors="replace"), f"Trivium (see {log})", 30)
        before = resident(process.pid)
        found = add_flows(f"unix:{RUN_DIR}/br0.mgmt")
        return found | {"bytes_per_rule": (resident(process.pid) - before) / RULES}
    finally:
        end(process, grace=10)


class Control:
    """A connection to a daemon's unixctl socket."""

    def __init__(self, path: Path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(path))
        self.unread, self.decoder = "", json.JSONDecoder()

    def call(self, method: str, *params: str) -> str:
        """One command and its answer."""
        self.socket.sendall(json.dumps({"id": 1, "method": method, "params": params}).encode())
        while True:
            try:
                answer, length = self.decoder.raw_decode(self.unread)
            except ValueError:
                part = self.socket.recv(65536).decode()
                if not part:
                    raise BenchError(f"{method}: the daemon has closed its socket") from None
                self.unread += part
                continue
            self.unread = self.unread[length:].lstrip()
            if answer.get("error"):
                raise BenchError(f"{method}: {answer['error']}")
            return answer["result"]


def open_vswitch() -> dict:
    """OVS's user-space datapath with ports that its unixctl socket feeds: memory of cached flows, and changes of rules."""
    directory = RUN_DIR / "ovs-switch"
    remote = f"unix:{directory}/db.sock"
    vsctl = lambda *words: run(["ovs-vsctl", f"--db={remote}", "--timeout=10", *words])
    server, names = database(directory)
    environment, daemon = dict(os.environ, **names), None
    try:
        vsctl("--no-wait", "init", "--", "set", "Open_vSwitch", ".", "other_config:max-idle=600000",
              f"other_config:flow-limit={3 * FLOWS}")
        daemon = spawn(["ovs-vswitchd", remote, "--enable-dummy", "--no-chdir", "-vsyslog:off",
                        f"--unixctl={directory}/vswitchd.ctl"], env=names, log=directory / "ovs-vswitchd.log")
        vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure",
              *(word for port in (1, 2) for word in ("--", "add-port", "br0", f"p{port}", "--", "set", "interface", f"p{port}",
                                                     "type=dummy", f"ofport_request={port}")))
        run(["ovs-ofctl", "add-flow", "br0", "priority=10,ip,nw_dst=0.0.0.0/0.255.255.255,actions=drop"], env=environment)
        run(["ovs-ofctl", "add-flow", "br0", "priority=1,in_port=1,actions=output:2"], env=environment)
        memory = weigh(Control(directory / "vswitchd.ctl"), daemon.pid)
        before = resident(daemon.pid)
        found = add_flows("br0", names)
        return memory, found | {"bytes_per_rule": (resident(daemon.pid) - before) / RULES}
    finally:
        end(daemon)
        end(server)


def weigh(control: Control, pid: int) -> dict:
    """Has flows cached, and tells what they take."""
    control.call("upcall/set-flow-limit", str(3 * FLOWS))
    cached = lambda: int(control.call("upcall/show").split("(current ")[1].split(")")[0])
    number = 0
    while number < 1000:
        number += 1
        control.call("netdev-dummy/receive", "p1", frame(number))
    time.sleep(1)
    few, before = cached(), resident(pid)
    while cached() < FLOWS:
        # Some are lost on their way to the tables: no more than a handful at a time.
        for _ in range(500):
            number += 1
            control.call("netdev-dummy/receive", "p1", frame(number))
    time.sleep(1)
    flows, grown = cached(), resident(pid) - before
    return {"bytes_per_flow": grown / (flows - few), "flows": flows, "resident_megabytes": resident(pid) / 1e6}


def jobs(seconds: float) -> dict:
    """What is measured in each round, by name."""
    found = {name: lambda name=name: {name: trivium(name, seconds)} for name in PACKETS + TABLES}
    found["ofctl-trivium"] = lambda: {"ofctl": {"Trivium": trivium_rules()}}

    def ovs() -> dict:
        memory, rules = open_vswitch()
        return {"ofctl": {"Open vSwitch": rules}, "ovs-memory": {"": memory}}
    found["ovs"] = ovs
    return found | live.jobs(seconds)


def measure(rounds: int, seconds: float, only: set[str] | None, seed: int, check=lambda: None) -> dict:
    """Rounds in random order; all values of every figure. `check` comes after each round."""
    values: dict = {}
    order = random.Random(seed)
    for number in range(rounds):
        chosen = [(name, job) for name, job in jobs(seconds).items() if not only or name in only]
        order.shuffle(chosen)
        for name, job in chosen:
            say(f"round {number + 1} of {rounds}: {name}")
            try:
                found = job()
            except BenchError as error:
                # What is missing in the end is said so.
                say(f"    not measured: {error}")
                continue
            for scenario, rows in found.items():
                for row, figures in rows.items():
                    own = values.setdefault(scenario, {}).setdefault(row, {})
                    for figure, value in figures.items():
                        own.setdefault(figure, []).append(value)
        check()
    return values


def number(value: float) -> str:
    """As people read it."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def page(results: dict) -> str:
    """The report."""
    values = copy.deepcopy(results["values"])
    for figures in values.get("revalidate-200k", {}).values():
        pairs = zip(figures.get("round_p50_us", ()), figures.get("quiet_p50_us", ()))
        figures["p50_ratio"] = [meanwhile / quiet for meanwhile, quiet in pairs] or figures.get("p50_ratio", [])
        if not figures["p50_ratio"]:
            del figures["p50_ratio"]
    medians = lambda scenario, row, figure: median(values[scenario][row][figure])
    lines = [
        "# Benchmarks of the switch", "",
        f"Written by `bench/switch`: do not edit. {results['cpu']}, {results['cpus']} CPUs, Linux {results['kernel']}, {results['date']}.",
        builds.line(results),
        f"Medians of {results['rounds']} rounds of {results['seconds']:g} s in random order; all values are in `bench/results/switch.json`."
        + (f" **{results['note']}**" if results["note"] else ""), "",
        "```sh", "make setup build && ci/setup bench", f"sudo bench/switch --rounds {results['rounds']} --seconds {results['seconds']:g}",
        "target/release/trivium bench SCENARIO --seconds 5      # one of them", "```", "",
        "## Targets", "", "| what | measured | |", "|---|---|---|"]
    for scenario, row, figure, way, wanted, words in WANTED:
        rows = [row] if row is not None else list(values.get(scenario, {}))
        try:
            found = {name: medians(scenario, name, figure) for name in rows}
        except KeyError:
            found = {}
        if not found:
            lines.append(f"| {words} | not measured | |")
            continue
        worst = (min if way == ">=" else max)(found, key=found.get)
        value = found[worst]
        met = value <= wanted if way == "<=" else value < wanted if way == "<" else value >= wanted
        lines.append(f"| {words} | {number(value)}{f' ({worst})' if len(found) > 1 else ''} | {'met' if met else '**not met**'} |")
    for ours, theirs, figures, wanted, words in RATIOS:
        try:
            found = {figure: medians(*ours, figure) / medians(*theirs, figure) for figure in figures}
        except KeyError:
            lines.append(f"| {words} | not measured | |")
            continue
        worst = min(found, key=found.get)
        named = f" (`{worst}`)" if len(found) > 1 else ""
        lines.append(f"| {words} | {found[worst]:.3g} times{named} | {'met' if found[worst] >= wanted else '**not met**'} |")
    if "ovs-memory" in values and "flow-memory-100k" in values:
        ours, theirs = medians("flow-memory-100k", "", "bytes_per_flow"), medians("ovs-memory", "", "bytes_per_flow")
        met = "met" if ours <= theirs else "**not met**"
        lines.append(f"| resident memory of a cached flow at 100,000: at most Open vSwitch's ({number(theirs)} octets) "
                     f"| {number(ours)} octets | {met} |")
    lines += ["", _WHAT, "## Packets (source aside, as in [benchmarks.md](benchmarks.md))", "",
              "| scenario | ns a packet | quickest 4 ms | Mpps, source included |", "|---|---|---|---|"]
    for scenario in (name for name in PACKETS if name in values):
        figures = [medians(scenario, "", figure) for figure in ("ns_per_packet", "best_ns_per_packet", "mpps")]
        lines.append(f"| `{scenario}` | {' | '.join(number(value) for value in figures)} |")
    for scenario in (name for name in [*TABLES, *_BESIDE] if name in values):
        rows = values[scenario]
        lines += ["", f"## {_TITLES[scenario]}", "", "| figure | " + " | ".join(row or "value" for row in rows) + " |",
                  "|---" * (len(rows) + 1) + "|"]
        for figure in next(iter(rows.values())):
            cells = (number(medians(scenario, row, figure)) if figure in rows[row] else "" for row in rows)
            lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


_WHAT = """\
## What is measured

All in memory and on one core, where nothing else is said. `emc`: 4,096 flows, every packet answered by the exact-match cache. `megaflow-N`: 100,000 flows of
N masks, destinations in random order, that cache off (`-exact`: on, where it holds one flow in twelve). `classifier-500k`: half a million rules of ten masks
and five priorities, every look-up hits; few keys are 100, fresh ones never come again; tracked says which bits an answer depends on; 32 keys
at once, as the slow path looks up the packets of a port's turn in a first table of many rules, or one by one, as in others. `upcall`: 512 packets on
their way, each of a flow of its own, so that each is decided; at the limit, flows of a port that has its share of the cache already are not kept; worker and slow path on a core each;
`upcall-15` through fifteen tables of four masks. `revalidate-200k`: a change of every rule that flows go by, until a barrier is answered and all of them have their new fate; a probe sets up one
flow after the other before and meanwhile. `production`: 64 tenants by Zipf's law, access lists of ports and of prefixes, connections of Pareto's lengths from four packets on, the world outside,
some scanning; worker and slow path share a core, caches begin empty. `one-rule`: 64 hosts by `NORMAL`, and a rule that drops BPDUs there and not there, 30 rounds each. `flow-mods`: bundles of 1,000, half
new rules, half removed, in a table of 100,000, each until a barrier is answered. The paper's tables: its four rules, 400 connections of ten packets at a time, both threads on one core; Open vSwitch's figures are in the paper
("The Design and Implementation of Open vSwitch", NSDI 2015, section 7.2). `paper-null`: those rules and one from each port to the other, frames that nobody
writes, all of one flow for each port; beside it Open vSwitch's DPDK build over two `net_null` ports, whose frames nobody writes either. Open vSwitch's memory: its user-space datapath with `--enable-dummy`, fed by `netdev-dummy/receive`.
`tuple-explosion`: 10,000 packets a second (5 Mbit/s) that differ from each of three rules of an access list in one bit, 8,192 combinations over and over, as
Csikor and others have them (CoNEXT 2019); victims are 65,536 connections that the access list lets through, as fast as they go. Two switches take turns of 20 ms, of which one is attacked; worker and slow path share a core.

Between devices (veth, 64 B, generator on core 0): the paper's rules, with `output` and with `NORMAL` for IPv4, 64 MAC addresses and 1,024 UDP ports. Workers and
Open vSwitch's PMD poll on core 1, with the devices' NAPI on core 0; the hook runs in NAPI on core 1. New flows: rules that look at MAC address and UDP port, so that
each of 67 million combinations, at random, is a flow of its own; packets that arrive are flows that were set up. `cpu_ns` is what a delivered frame takes of each core, the
generator's work included. The Linux bridge: ten alternations of an nft rule in its forward hook.
"""
_TITLES = {
    "classifier-500k": "`classifier-500k`", "upcall": "`upcall`", "upcall-15": "`upcall-15`", "revalidate-200k": "`revalidate-200k`",
    "production": "`production`", "one-rule": "`one-rule`", "flow-mods": "`flow-mods`", "paper-table1": "`paper-table1`",
    "tuple-explosion": "`tuple-explosion`", "paper-table2": "`paper-table2`", "paper-null": "`paper-null`", "flow-memory-100k": "`flow-memory-100k`", "ofctl": "100,000 rules by `ovs-ofctl --bundle add-flows`",
    "ovs-memory": "Open vSwitch: memory of cached flows", "ovs-null": "Open vSwitch over DPDK's `net_null`",
    "veth": "The paper's rules between two veth", "veth-upcall": "New flows between two veth",
    "one-rule-linux": "The Linux bridge, and an nft rule that drops BPDUs"}
#: What others do, and what goes between devices.
_BESIDE = ["ofctl", "ovs-memory", "ovs-null", "veth", "veth-upcall", "one-rule-linux"]


def cpu() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def pages(results: dict) -> dict[str, str]:
    """The page, by file name."""
    return {"benchmarks-switch.md": page(results)}


def main(argv: list[str]) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="bench/switch", description="Measures the switch's caches and tables, and Open vSwitch where both can "
                                     "be asked the same. A whole run writes docs/benchmarks-switch.md and bench/results/switch.json.")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, each over all scenarios in random order (default 5)")
    parser.add_argument("--seconds", type=float, default=5, help="length of each measurement (default 5)")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this scenario, or one of " + ", ".join(
                        name for name in jobs(1) if name not in PACKETS + TABLES) + " (may be repeated); prints the page")
    parser.add_argument("--seed", type=int, default=1, help="of the order (default 1)")
    parser.add_argument("--note", default="", help="a remark at the top of the page, as what else the machine did")
    parser.add_argument("--report", metavar="JSON", help="measure nothing; make the page anew from these results")
    chosen = parser.parse_args(argv)
    if chosen.rounds < 1 or chosen.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")

    def job() -> None:
        if chosen.report:
            results = builds.read(Path(chosen.report))
        else:
            check_cores()
            noted = builds.begin("switch", argv)
            values = measure(chosen.rounds, chosen.seconds, set(chosen.only) if chosen.only else None, chosen.seed,
                             lambda: builds.check(noted))
            results = builds.seal({"rounds": chosen.rounds, "seconds": chosen.seconds, "seed": chosen.seed, "note": chosen.note, "cpu": cpu(),
                                   "cpus": os.cpu_count(), "kernel": platform.release(),
                                   "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "values": values}, noted)
        if chosen.only:
            print(page(results))
            return
        (ROOT / "bench/results/switch.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for name, text in pages(results).items():
            (ROOT / "docs" / name).write_text(text, encoding="utf-8")
        say("wrote docs/benchmarks-switch.md and bench/results/switch.json")

    return alone(job, needs_root=not chosen.report)
