"""The figures that Trivium is held to, and whether a run met them."""

from dataclasses import dataclass

from .stats import pick, ratio


@dataclass(frozen=True)
class Outcome:
    """One target after a run."""

    title: str
    wanted: str
    measured: str
    met: bool | None  # None: not measured

    @property
    def verdict(self) -> str:
        """For the report."""
        return {True: "met", False: "**not met**", None: "not measured"}[self.met]


def outcomes(results: dict) -> list[Outcome]:
    """All targets in the report's order."""
    return [*_in_memory(results), *_over_af_xdp(results), *_in_the_hook(results), _resident(results), *_idle(results)]


def _in_memory(results: dict) -> list[Outcome]:
    found = []
    for key, limit in (("port-to-port", 8), ("parse", 10), ("bridge", 20), ("bridge-100k", 42)):
        cost, best = (pick(_rounds(results, "memory", key), name) for name in ("ns_per_packet", "best_ns_per_packet"))
        # The median decides; the quickest slice says what it is where nobody else is on the core.
        beside = f" (quickest slice {best.low:.1f})" if best else ""
        found.append(_limit(f"in memory, `{key}`", f"at most {limit} ns a packet", cost and cost.median, limit, f"ns{beside}"))
    allocated = [pick(_rounds(results, "memory", key), "allocations")
                 for key in ("port-to-port", "parse", "bridge", "bridge-100k", "bridge-2-workers")]
    known = [summary for summary in allocated if summary]
    most = max((summary.high for summary in known), default=None)
    found.append(Outcome("in memory, allocations while measuring", "0", "-" if most is None else f"{most:.0f}",
                         None if most is None else most == 0))
    one, two = (pick(_rounds(results, "memory", key), "mpps") for key in ("bridge", "bridge-2-workers"))
    found.append(_factor("in memory, two workers over one bridge", ratio(two, one), 1.8, "one worker"))
    return found


def _over_af_xdp(results: dict) -> list[Outcome]:
    ours = pick(_rounds(results, "planes", "trivium"), "load", "few", "mpps")
    found = []
    for key, factor, name in (("ovs-af-xdp", 1.2, "OVS over AF_XDP"), ("testpmd-af-xdp", 0.95, "testpmd io over `net_af_xdp`"),
                              ("ovs-af-packet", 3.0, "OVS over AF_PACKET")):
        theirs = pick(_rounds(results, "planes", key), "load", "few", "mpps")
        found.append(_factor("over AF_XDP on veth, 64 B", ratio(ours, theirs), factor, name))
    for key, mode in (("trivium", "polling always"), ("trivium-adaptive", "adaptive, as by default")):
        streams = [pick(_rounds(results, "planes", plane), "tcp", "gbps") for plane in (key, "ovs-af-xdp")]
        found.append(_factor(f"over AF_XDP on veth, TCP, {mode}", ratio(*streams), 1.2, "OVS over AF_XDP"))
    return found


def _in_the_hook(results: dict) -> list[Outcome]:
    found = []
    for key, factor, name in (("xdp-redirect", 0.8, "a bare devmap redirect"), ("linux-bridge", 2.4, "the Linux bridge")):
        rates = [pick(_rounds(results, "planes", plane), "load", "few", "mpps") for plane in ("trivium-hook", key)]
        found.append(_factor("bridge in the driver hook, 64 B", ratio(*rates), factor, name))
    streams = [pick(_rounds(results, "planes", plane), "tcp", "gbps") for plane in ("trivium-hook", "linux-bridge")]
    found.append(_factor("bridge in the driver hook, TCP", ratio(*streams), 1, "the Linux bridge"))
    return found


def _resident(results: dict) -> Outcome:
    own = pick(_rounds(results, "planes", "trivium"), "memory", "own_mib")
    return _limit("resident memory of the idle daemon, frame memory aside", "under 64 MB", own and own.median * 1.048576, 64, "MB")


def _idle(results: dict) -> list[Outcome]:
    rounds = _rounds(results, "planes", "trivium-adaptive")
    cpu = pick(rounds, "idle", "cpu_percent")
    found = [_limit("CPU time of the idle daemon, adaptive", "under 1 % of a core", cpu and cpu.median, 1, "%", digits=2)]
    for key, name in (("p50", "median"), ("p99", "99th percentile")):
        waking = pick(rounds, "idle", "ping", key)
        found.append(_limit(f"latency from idle, adaptive: ping after 1 s of silence, {name}", "under 200 us", waking and waking.median,
                            200, "us", digits=0))
    return found


def _limit(title: str, wanted: str, value: float | None, limit: float, unit: str, digits: int = 1) -> Outcome:
    return Outcome(title, wanted, "-" if value is None else f"{value:.{digits}f} {unit}", None if value is None else value <= limit)


def _factor(title: str, value: float | None, least: float, name: str) -> Outcome:
    return Outcome(title, f"at least {least:g}x {name}", "-" if value is None else f"{value:.2f}x",
                   None if value is None else value >= least)


def _rounds(results: dict, part: str, key: str) -> list[dict]:
    return results[part].get(key, {}).get("rounds", [])
