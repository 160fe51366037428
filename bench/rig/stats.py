"""Medians and spreads: what is said about several rounds."""

from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Summary:
    """Of one quantity over the rounds."""

    median: float
    low: float
    high: float
    rounds: tuple[float, ...]

    @property
    def spread(self) -> float:
        """(highest - lowest) / median."""
        return (self.high - self.low) / self.median if self.median else 0.0


def summarize(values) -> Summary | None:
    """None when nothing was measured."""
    values = tuple(values)
    return Summary(median(values), min(values), max(values), values) if values else None


def ratio(a: Summary | None, b: Summary | None) -> float | None:
    """a's median over b's, None when either is not there."""
    return a.median / b.median if a and b and b.median else None


def pick(rounds: list[dict], *path: str) -> Summary | None:
    """The summary of one number out of the rounds in which it was measured (`path`: keys from the round down)."""
    found = []
    for entry in rounds:
        for key in path:
            entry = entry.get(key) if isinstance(entry, dict) else None
        if entry is not None:
            found.append(entry)
    return summarize(found)
