"""One run of the rig: rounds in random order, each plane in namespaces of its own, all results kept."""

import dataclasses
import random
import sys
import time

from . import cpu, host, memory, planes, traffic
from .lab import PLANE_CORE, Lab, check_cores
from .stats import pick
from .system import BenchError, our_pids, run, wait_until

# The rig's own ceilings: key -> (title, NAPI on the plane's core).
CEILINGS = {"drop-same-core": ("generator to XDP drop, all on core 0", False),
            "drop-across": ("generator on core 0 to XDP drop on core 1", True)}


class Session:
    """Settings and results of a run."""

    def __init__(self, rounds: int, seconds: float, only: set[str] | None, retries: int, seed: int | None):
        self.rounds, self.seconds, self.only, self.retries = rounds, seconds, only, retries
        self.seed = random.randrange(1 << 32) if seed is None else seed
        self.order = random.Random(self.seed)
        self.results = {"settings": {"rounds": rounds, "seconds": seconds, "seed": self.seed, "retries": retries,
                                     "only": sorted(only or [])},
                        "planes": {}, "ceilings": {}, "memory": {}}

    def measure(self, check=lambda: None) -> dict:
        """Runs all rounds and returns the results (what the report and the plot are made of); `check` comes after each round."""
        check_cores()
        with Lab() as lab:
            self.results["host"] = host.describe(lab.dut)
        jobs = [*self._ceilings(), *self._planes(), *self._memory()]
        if not jobs:
            raise BenchError("nothing to measure: no plane fits --only, or none is installed")
        for number in range(1, self.rounds + 1):
            self.order.shuffle(jobs)
            for name, entry, job in jobs:
                say(f"round {number}/{self.rounds}  {name}")
                speed = cpu.core_speed(PLANE_CORE)
                try:
                    result = job()
                except BenchError as error:
                    result = {"error": str(error)}
                result |= {"round": number, "core_speed": speed}
                entry["rounds"].append(result)
                say(f"    {brief(result)}")
            check()
        return self.results

    def _wanted(self, key: str) -> bool:
        return self.only is None or key in self.only

    def _ceilings(self) -> list:
        jobs = []
        for key, (title, across) in CEILINGS.items():
            if self._wanted(key):
                entry = self.results["ceilings"][key] = {"title": title, "rounds": []}
                jobs.append((title, entry, lambda across=across: self._ceiling(across)))
        return jobs

    def _planes(self) -> list:
        jobs = []
        for kind in planes.ALL:
            plane = kind()
            entry = {"title": plane.title, "group": plane.group, "work": plane.work, "rounds": [],
                     "missing": plane.missing() if self._wanted(plane.key) else "left out by --only"}
            self.results["planes"][plane.key] = entry
            if entry["missing"] is None:
                entry["version"] = plane.version()
                jobs.append((plane.title, entry, lambda kind=kind: self._plane(kind())))
        return jobs

    def _memory(self) -> list:
        jobs = []
        for key, title, job, missing in memory.jobs(self.seconds):
            entry = {"title": title, "rounds": [], "missing": missing if self._wanted(key) else "left out by --only"}
            self.results["memory"][key] = entry
            if entry["missing"] is None:
                jobs.append((title, entry, lambda job=job: self._in_memory(job)))
        return jobs

    def _in_memory(self, job) -> dict:
        def measured() -> dict:
            before = cpu.snapshot()
            value = job()
            # The benches have ended by now, so that their time counts to nobody.
            used = cpu.usage(before, cpu.snapshot(), our_pids())
            return value | {"steal": used.steal, "foreign": used.foreign, "disturbed": used.disturbed()}

        value, discarded = self._undisturbed(measured)
        return value | {"discarded": discarded}

    def _ceiling(self, across: bool) -> dict:
        with Lab() as lab:
            if across:
                lab.receive_with_napi(True)
                lab.pin_napi()
            load, discarded = self._undisturbed(
                lambda: dataclasses.asdict(traffic.full_rate(lab, traffic.FEW, self.seconds, sink_at=(lab.dut, "d0"))))
            return {"load": {"few": load}, "discarded": discarded}

    def _plane(self, plane: planes.Plane) -> dict:
        result: dict = {"load": {}, "discarded": []}
        with Lab() as lab:
            try:
                plane.start(lab)
                plane.before_hosts(lab)
                wait_until(lambda: answers(lab), f"{plane.title}: a ping through it", 15)
                result["ping"] = dataclasses.asdict(traffic.ping(lab, max(20, round(self.seconds * 40))))
                result |= plane.figures(lab)
                result["tcp"], discarded = self._undisturbed(lambda: dataclasses.asdict(traffic.tcp(lab, self.seconds)))
                result["discarded"] += discarded
                plane.before_load(lab)
                for profile in traffic.PROFILES.values():
                    load, discarded = self._undisturbed(
                        lambda p=profile: dataclasses.asdict(traffic.full_rate(lab, p, self.seconds)))
                    result["load"][profile.key] = load
                    result["discarded"] += discarded
            except BenchError as error:
                result["error"] = str(error)
            finally:
                plane.stop()
        return result

    def _undisturbed(self, measure) -> tuple[dict, list[dict]]:
        """Measures again, a few times, while the host or other processes take part of the cores."""
        discarded = []
        while True:
            value = measure()
            if not value["disturbed"] or len(discarded) == self.retries:
                return value, discarded
            discarded.append(value)
            time.sleep(1)


def answers(lab: Lab) -> bool:
    """Whether one ping comes back."""
    with lab.gen.entered():
        return " 1 received" in run(["ping", "-n", "-c", "1", "-W", "1", traffic.SINK_IP], check=False)


def brief(result: dict) -> str:
    """One line for the terminal."""
    words = [f"{key} {load['mpps']:.3f} Mpps" for key, load in result.get("load", {}).items()]
    if "mpps" in result:
        words.append(f"{result['mpps']:.1f} Mpps  {result['ns_per_packet']:.2f} ns")
    if "tcp" in result:
        words.append(f"tcp {result['tcp']['gbps']:.2f} Gbit/s")
    if "ping" in result:
        words.append(f"ping {result['ping']['p50']:.0f} us")
    if "idle" in result:
        words.append(f"idle {result['idle']['cpu_percent']:.2f} %, from idle {result['idle']['ping']['p50']:.0f} us")
    if "error" in result:
        words.append(f"not measured: {result['error']}")
    if any(part.get("disturbed") for part in (*result.get("load", {}).values(), result.get("tcp", {}), result)):
        words.append("(disturbed)")
    return ", ".join(words)


def say(text: str) -> None:
    """Progress goes to the terminal at once."""
    print(text, file=sys.stderr, flush=True)


def medians(results: dict) -> list[str]:
    """The short table at the end of a run."""
    lines = []
    for entry in (*results["ceilings"].values(), *results["planes"].values()):
        rate = pick(entry["rounds"], "load", "few", "mpps")
        stream = pick(entry["rounds"], "tcp", "gbps")
        lines.append(f"{entry['title']:<45} " + (f"{rate.median:7.3f} Mpps" if rate else "not measured")
                     + (f"  {stream.median:6.2f} Gbit/s" if stream else ""))
    for entry in results["memory"].values():
        cost = pick(entry["rounds"], "ns_per_packet")
        lines.append(f"{entry['title']:<45} " + (f"{cost.median:7.2f} ns a packet" if cost else "not measured"))
    return lines
