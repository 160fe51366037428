"""`docs/benchmarks.md` out of the results of a run."""

from . import build
from .lab import PLANE_CORE
from .stats import Summary, pick, ratio
from .targets import outcomes
from .traffic import PROFILES

GROUPS = {"user": "User-space planes (polling process on core 1, receiving NAPI on core 0)",
          "kernel": "Planes in the kernel (receiving NAPI threaded, on core 1)"}


def markdown(results: dict, notes: str = "", scaling: dict | None = None) -> str:
    """The whole page; `notes` is a hand-written section (what the figures come from) that goes in as it stands, `scaling` what
    `bench/scaling` left."""
    parts = [_head(results), _targets(results), *(_forwarding(results, key) for key in PROFILES), _tcp(results), _ping(results),
             _idle(results), _memory(results), _scaling(scaling), notes.strip(), _method(results), _machine(results), _rounds(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(results: dict) -> str:
    settings, host = results["settings"], results["host"]
    lines = ["# Benchmarks", "",
             "Written by `make bench`: do not edit. Trivium and its peers, side by side in one run, in network namespaces on one",
             f"machine: {host['cpu']}, {host['cpus']} CPUs, Linux {host['kernel']}, {host['date']}.", "", build.line(results), "",
             f"Medians of {settings['rounds']} rounds of {settings['seconds']:g} s (lowest to highest in brackets), all planes in",
             "random order in each round. Machines like this one are shared and rounds differ: read the ratios, not the digits.", "",
             "![The medians as bars](benchmarks.svg)", "", "To reproduce:", "", "```sh", "make setup build && ci/setup bench"]
    arguments = f"--rounds {settings['rounds']} --seconds {settings['seconds']:g} --seed {settings['seed']}"
    lines += [f"sudo bench/run {arguments}" + "".join(f" --only {key}" for key in settings["only"]), "```", "",
              "All numbers, with those of discarded measurements, are in `bench/results/latest.json`."]
    return "\n".join(lines)


def _targets(results: dict) -> str:
    rows = [[o.title, o.wanted, o.measured, o.verdict] for o in outcomes(results)]
    return "## Targets\n\n" + table(["what", "wanted", "measured", ""], rows)


def _forwarding(results: dict, profile: str) -> str:
    ours = pick(results["planes"]["trivium"]["rounds"], "load", profile, "mpps")
    text = f"## Forwarding 64-byte frames: {PROFILES[profile].title}\n"
    for group, title in GROUPS.items():
        rows = []
        for entry in results["planes"].values():
            if entry["group"] == group:
                rows.append(_forwarding_row(entry, entry["rounds"], profile, ours if group == "user" else None))
        if group == "kernel" and profile == "few":
            rows += [_forwarding_row(entry, entry["rounds"], profile, None) for entry in results["ceilings"].values()]
        heads = ["plane", "work per frame", "delivered, Mpps", "Trivium is", "offered, Mpps", "lost", "CPU ns a frame: core 0",
                 "core 1"]
        if group == "kernel":
            heads.remove("Trivium is")
            rows = [row if len(row) < 8 else row[:3] + row[4:] for row in rows]
        text += f"\n{title}:\n\n" + table(heads, rows) + "\n"
    return text.rstrip()


def _forwarding_row(entry: dict, rounds: list[dict], profile: str, ours: Summary | None) -> list[str]:
    rate = pick(rounds, "load", profile, "mpps")
    name = [entry["title"], entry.get("work", "dropped at once")]
    if rate is None:
        return [*name, f"not measured: {why(entry)}"]
    loads = [r["load"][profile] for r in rounds if profile in r.get("load", {})]
    offered = pick([{"offered": load["offered"] / load["seconds"] / 1e6} for load in loads], "offered")
    lost = pick([{"lost": 100 * (1 - load["delivered"] / max(load["offered"], 1))} for load in loads], "lost")
    cores = [pick([{"ns": load["cpu_ns"][core]} for load in loads], "ns") for core in (0, 1)]
    mine = ratio(ours, rate)
    return [*name, spread(rate, 3), f"{mine:.2f}x" if mine else "-", f"{offered.median:.2f}", f"{max(0.0, lost.median):.0f} %",
            f"{cores[0].median:.0f}", f"{cores[1].median:.0f}"]


def _tcp(results: dict) -> str:
    rows = []
    ours = pick(results["planes"]["trivium"]["rounds"], "tcp", "gbps")
    for entry in results["planes"].values():
        rate = pick(entry["rounds"], "tcp", "gbps")
        if rate is None:
            rows.append([entry["title"], f"not measured: {why(entry)}"])
            continue
        mine = ratio(ours, rate)
        again = pick(entry["rounds"], "tcp", "retransmits")
        rows.append([entry["title"], spread(rate, 2), f"{mine:.2f}x" if mine else "-", f"{again.median:.0f}"])
    return ("## TCP: one iperf3 stream, MTU 1500, offloads off\n\nBoth ends on core 0. The kernel's planes do their share in the "
            "sender's softirq (without\nGRO a veth has no NAPI to move).\n\n"
            + table(["plane", "Gbit/s", "Trivium is", "segments sent again"], rows))


def _ping(results: dict) -> str:
    rows = []
    for entry in results["planes"].values():
        middle, high = (pick(entry["rounds"], "ping", key) for key in ("p50", "p99"))
        lost = pick([{"lost": r["ping"]["sent"] - r["ping"]["received"]} for r in entry["rounds"] if "ping" in r], "lost")
        rows.append([entry["title"], spread(middle, 0), spread(high, 0), f"{lost.high:.0f}"] if middle
                    else [entry["title"], f"not measured: {why(entry)}"])
    return ("## Latency: `ping -i 0.01`, no other load\n\nRound trips in microseconds, the ends' own kernel work included.\n\n"
            + table(["plane", "median", "99th percentile", "lost, worst round"], rows))


def _idle(results: dict) -> str:
    rows = []
    for entry in results["planes"].values():
        used, middle, high = (pick(entry["rounds"], "idle", *path) for path in (("cpu_percent",), ("ping", "p50"), ("ping", "p99")))
        if used:
            rows.append([entry["title"], spread(used, 2), spread(middle, 0), spread(high, 0)])
    if not rows:
        return ""
    return ("## Idle\n\nCPU time of all its threads while nothing arrives, and round trips of pings with a second of silence before each, so "
            "that\neverything sleeps when they come (ten in each round: the 99th percentile is the slowest).\n\n"
            + table(["plane", "% of a core", "from idle, us: median", "99th percentile"], rows))


def _memory(results: dict) -> str:
    rows = []
    for entry in results["memory"].values():
        cost, rate = (pick(entry["rounds"], key) for key in ("ns_per_packet", "mpps"))
        if cost is None:
            rows.append([entry["title"], f"not measured: {why(entry)}"])
            continue
        best, cycles, allocations, lost = (pick(entry["rounds"], key) for key in (
            "best_ns_per_packet", "tsc_cycles_per_packet", "allocations", "loss"))
        rows.append([entry["title"], spread(cost, 2), f"{best.low:.2f}" if best else "-", f"{rate.median:.1f}",
                     f"{cycles.median:.0f}" if cycles else "-",
                     f"{allocations.high:.0f}" if allocations else "-", f"{lost.high:g}" if lost else "-"])
    return ("## In memory\n\nOne core, no devices. Trivium's frames come from at least 8,192 in rotation, headers written anew, the source's own "
            "cost taken\noff; testpmd's `net_null` circles its mbufs, `io` touches no byte of them and `macswap` writes the MAC addresses; its "
            "rate is the\nsum of both ports. The quickest slice is the cheapest stretch of 10 ms in all rounds: what it costs while nobody else is on the "
            "core.\n\n"
            + table(["bench", "ns a packet", "quickest slice, ns", "Mpps", "TSC cycles", "allocations", "loss"], rows))


def _scaling(scaling: dict | None) -> str:
    heading = "## From 1 to 8 workers, in memory\n\n"
    if scaling is None:
        return heading + "Not measured: run `bench/scaling` on a machine with eight cores or more."
    return (heading + f"`bench/scaling --seconds {scaling['seconds']:g} --rounds {scaling['rounds']}`, scenario `{scaling['scenario']}`, on "
            f"{scaling['cpu']}, {scaling['cores']} cores,\nLinux {scaling['kernel']}, {scaling['date']}.\n\n" + scaling["table"])


def _method(results: dict) -> str:
    return """## How it is measured

```
namespace gen          namespace dut            namespace sink
generator, core 0  g0 ---- d0 [plane, core 1] d1 ---- s0  counting XDP drop
```

- The generator is `BPF_PROG_TEST_RUN` with live frames (`bench/bpf/gen.bpf.c`): 60 bytes and FCS, UDP, headers written anew in each.
  It always offers what core 0 can make, so *lost* is what the plane did not take, and core 0 is always busy. Offered and delivered
  are counted by the two programs, forwarded (in the JSON file) by the kernel at `d1`.
- The sink's program runs in the softirq that the plane's transmit causes, so its cost (nearly the same for all) is part of each figure.
- User-space planes have core 1 to themselves, and the NAPI that receives on `d0` runs on core 0, between the generator's batches. Planes in the
  kernel receive in threaded NAPI, pinned on core 1. Compare within a group; across groups compare the CPU time of both cores.
- CPU time: wall time less idle, iowait and steal of `/proc/stat` (idle is measured with time stamps under NO_HZ, also where softirqs are
  accounted by sampling), divided by the frames delivered.
- All veth offloads are off at both ends. AF_PACKET planes and the bridge get GRO on `d0` and `d1` while 64-byte frames flow (a veth without XDP
  program receives by NAPI only then, and redirected frames need it) and not for TCP.
- Neighbours are permanent, IPv6 is off. Before each load the sink sends a frame from each host, so that nothing is flooded.
- A measurement during which the host or other processes took more than 5 % of a core is made again, at most """ + str(
        results["settings"]["retries"]) + """ times; when still
  disturbed it counts, and is marked with *d* below."""


def _machine(results: dict) -> str:
    host = results["host"]
    rows = [["CPU", f"{host['cpu']}, {host['cpus']} CPUs, hypervisor: {host['hypervisor']}"], ["kernel", f"Linux {host['kernel']}"],
            ["memory", f"{host['memory_gib']} GiB"], ["load average before", f"{host['load_before']}"]]
    rows += [[entry["title"], entry["version"]] for entry in results["planes"].values() if entry.get("version")]
    rows += [[name, text] for name, text in host["tools"].items()]
    rows += [[f"`{key}` (in `dut`)", value] for key, value in host["sysctls"].items()]
    rows += [[f"`{key}`", value] for key, value in host.get("host_sysctls", {}).items()]
    return "## Machine and versions\n\n" + table(["", ""], rows)


def _rounds(results: dict) -> str:
    rows = []
    for entry in (*results["ceilings"].values(), *results["planes"].values()):
        for profile in PROFILES:
            _round_row(rows, entry, f"64 B, {profile}, Mpps", lambda r, p=profile: r.get("load", {}).get(p), "mpps", 3)
        _round_row(rows, entry, "TCP, Gbit/s", lambda r: r.get("tcp"), "gbps", 2)
        _round_row(rows, entry, "ping median, us", lambda r: r.get("ping"), "p50", 0)
        _round_row(rows, entry, "idle, % of a core", lambda r: r.get("idle"), "cpu_percent", 2)
    for entry in results["memory"].values():
        _round_row(rows, entry, "ns a packet", lambda r: r, "ns_per_packet", 2)
    speeds = pick([r for part in ("ceilings", "planes", "memory") for entry in results[part].values() for r in entry["rounds"]],
                  "core_speed")
    text = "## All rounds\n\n"
    if speeds:
        text += (f"Core {PLANE_CORE}'s own speed before each measurement (a fixed loop, best of 20): at its slowest {speeds.low / speeds.high:.0%} of "
                 f"its fastest, median {speeds.median / speeds.high:.0%}.\n\n")
    return text + table(["", "", "in the order measured"], rows)


def _round_row(rows: list, entry: dict, what: str, part, key: str, digits: int) -> None:
    values = []
    for found in map(part, entry["rounds"]):
        if found and key in found:
            values.append(f"{found[key]:.{digits}f}" + ("d" if found.get("disturbed") else ""))
        else:
            values.append("-")
    if any(value != "-" for value in values):
        rows.append([entry["title"], what, " ".join(values)])


def why(entry: dict) -> str:
    """Why there is no figure."""
    errors = [r["error"] for r in entry["rounds"] if "error" in r]
    return (entry.get("missing") or (errors[0] if errors else "no result")).replace("|", "/").replace("\n", " ")


def spread(summary: Summary | None, digits: int) -> str:
    """Median (lowest - highest)."""
    return "-" if summary is None else f"**{summary.median:.{digits}f}** ({summary.low:.{digits}f}-{summary.high:.{digits}f})"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; short rows are filled up."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in rows:
        lines.append("| " + " | ".join(str(cell) for cell in (*row, *[""] * (len(heads) - len(row)))) + " |")
    return "\n".join(lines)
