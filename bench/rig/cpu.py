"""CPU time of the cores over an interval, and what else ran meanwhile.

Busy time is wall time less idle, iowait and steal of `/proc/stat`: under NO_HZ the kernel measures idle with time stamps and
leaves interrupts out of it, so this holds even where it accounts softirqs only by sampling at the tick.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Snapshot:
    """Counters at one instant (seconds)."""

    at: float
    idle: dict[int, float]
    steal: dict[int, float]
    processes: dict[tuple[int, int], float]


def snapshot() -> Snapshot:
    """Reads /proc once."""
    idle, steal = {}, {}
    at = time.monotonic()
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words and words[0].startswith("cpu") and words[0] != "cpu":
            ticks = [int(w) / _TICK for w in words[1:]]
            idle[int(words[0][3:])] = ticks[3] + ticks[4]
            steal[int(words[0][3:])] = ticks[7]
    return Snapshot(at, idle, steal, _process_times())


def _process_times() -> dict[tuple[int, int], float]:
    """CPU seconds of every user process, by pid and start time."""
    times = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[20]) > 0:  # vsize: kernel threads have none
                times[int(entry), int(fields[19])] = (int(fields[11]) + int(fields[12])) / _TICK
    return times


@dataclass
class Usage:
    """Between two snapshots."""

    seconds: float
    busy: dict[int, float]  # core -> seconds
    steal: float  # largest share of a core that the host took, 0..1
    foreign: float  # share of one core that processes not of the rig used

    def disturbed(self, limit: float = 0.05) -> bool:
        """Whether the host or other processes took more of the cores than a measurement bears."""
        return self.steal > limit or self.foreign > limit


def usage(a: Snapshot, b: Snapshot, ours: set[int]) -> Usage:
    """What happened between two snapshots; `ours` are the pids of the rig."""
    seconds = b.at - a.at
    steal = {core: b.steal[core] - a.steal[core] for core in b.steal}
    busy = {core: max(0.0, seconds - (b.idle[core] - a.idle[core]) - steal[core]) for core in b.idle}
    foreign = sum(spent - a.processes.get(key, 0.0) for key, spent in b.processes.items() if key[0] not in ours)
    return Usage(seconds, busy, max(steal.values()) / seconds, foreign / seconds)


def core_speed(core: int) -> float:
    """Rounds of a fixed loop per microsecond on a core: the best of several short tries.

    Virtual cores may be threads of one physical core, shared with a neighbour that no counter shows: then everything is slower
    by up to a half, and this is where it is seen.
    """
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        best = min(_loop_seconds() for _ in range(20))
    finally:
        os.sched_setaffinity(0, allowed)
    return _LOOP_ROUNDS / best / 1e6


_LOOP_ROUNDS = 20_000


def _loop_seconds() -> float:
    value, began = 1, time.perf_counter()
    for _ in range(_LOOP_ROUNDS):
        value = value * 3 & 0xFFFF
    return time.perf_counter() - began
