"""Pictures: `docs/benchmarks.svg`, the medians as bars with lowest and highest round as whiskers; and curves for `bench/hook`."""

from dataclasses import dataclass
from html import escape

from .stats import Summary, pick
from .traffic import PROFILES

_WIDTH, _LEFT, _RIGHT = 860, 250, 70
_BAR, _GAP, _TITLE, _AXIS = 16, 6, 34, 34
_OURS, _USER, _KERNEL, _INK, _GRID = "#c2410c", "#2563a8", "#6b7f99", "#1f2933", "#d5dbe3"


@dataclass
class Bar:
    """One plane in one panel; without a summary its absence is written."""

    label: str
    summary: Summary | None
    colour: str


@dataclass
class Panel:
    """Bars over one axis."""

    title: str
    unit: str
    bars: list[Bar]


def svg(results: dict) -> str:
    """The whole picture as text."""
    body, y = [], 14
    for panel in panels(results):
        if panel.bars:
            drawn, height = _panel(panel, y)
            body += drawn
            y += height
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        "<title>Trivium and its peers: medians, lowest and highest round</title>",
        f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>', *body, "</svg>"]) + "\n"


def panels(results: dict) -> list[Panel]:
    """What is drawn."""
    entries = list(results["planes"].items())

    def bars(*path: str) -> list[Bar]:
        return [Bar(entry["title"], pick(entry["rounds"], *path), _colour(key, entry)) for key, entry in entries]

    found = [Panel(f"64-byte frames, {profile.title}", "Mpps delivered, more is better", bars("load", key, "mpps"))
             for key, profile in PROFILES.items()]
    found.append(Panel("TCP, one iperf3 stream, MTU 1500, offloads off", "Gbit/s, more is better", bars("tcp", "gbps")))
    found.append(Panel("ping through the idle plane", "microseconds, median, less is better", bars("ping", "p50")))
    found.append(Panel("in memory, one core", "nanoseconds a packet, less is better", [
        Bar(entry["title"], pick(entry["rounds"], "ns_per_packet"), _USER if key.startswith("testpmd") else _OURS)
        for key, entry in results["memory"].items()]))
    return found


def ticks(highest: float) -> list[float]:
    """Round values from 0 to at least `highest`, four to eight of them."""
    if highest <= 0:
        return [0.0, 1.0]
    magnitude = 10.0 ** -12
    while magnitude * 10 <= highest:
        magnitude *= 10
    step = next(s * magnitude for s in (0.2, 0.5, 1, 2) if highest / (s * magnitude) <= 6)
    count = int(-(-highest // step))
    return [round(step * n, 12) for n in range(count + 1)]


def _panel(panel: Panel, top: int) -> tuple[list[str], int]:
    highest = max((bar.summary.high for bar in panel.bars if bar.summary), default=1.0)
    marks = ticks(highest)
    width = _WIDTH - _LEFT - _RIGHT
    height = len(panel.bars) * (_BAR + _GAP)
    base = top + _TITLE

    def x(value: float) -> float:
        return _LEFT + width * value / marks[-1]

    out = [f'<text x="10" y="{top + 16}" font-size="14" font-weight="600">{escape(panel.title)}</text>']
    for mark in marks:
        out.append(f'<line x1="{x(mark):.1f}" y1="{base}" x2="{x(mark):.1f}" y2="{base + height}" stroke="{_GRID}"/>')
        out.append(f'<text x="{x(mark):.1f}" y="{base + height + 13}" text-anchor="middle" font-size="11">{mark:g}</text>')
    out.append(f'<text x="{_WIDTH - 10}" y="{top + 16}" text-anchor="end" font-size="11">{escape(panel.unit)}</text>')
    for number, bar in enumerate(panel.bars):
        out += _bar(bar, base + number * (_BAR + _GAP) + _GAP / 2, x)
    return out, _TITLE + height + _AXIS


@dataclass
class Curves:
    """Lines over one pair of axes; each line has a label, the key of its plane, and its points."""

    title: str
    x_unit: str
    y_unit: str
    lines: list[tuple[str, str, list[tuple[float, float]]]]


_CURVE_HEIGHT = 220
_SHADES = {"trivium-hook": _OURS, "linux-bridge": _KERNEL, "xdp-redirect": _USER}


def curves(title: str, panels: list[Curves]) -> str:
    """Panels of lines, one below the other."""
    body, y = [], 14
    for panel in panels:
        drawn, height = _curves(panel, y)
        body += drawn
        y += height
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="{_INK}">',
        f"<title>{escape(title)}</title>", f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>', *body, "</svg>"]) + "\n"


def _curves(panel: Curves, top: int) -> tuple[list[str], int]:
    points = [point for _, _, line in panel.lines for point in line]
    across, up = (ticks(max((point[axis] for point in points), default=1.0)) for axis in (0, 1))
    left, width, base = 60, _WIDTH - 60 - _LEFT, top + _TITLE

    def x(value: float) -> float:
        return left + width * value / across[-1]

    def y(value: float) -> float:
        return base + _CURVE_HEIGHT * (1 - value / up[-1])

    out = [f'<text x="10" y="{top + 16}" font-size="14" font-weight="600">{escape(panel.title)}</text>',
           f'<text x="{left + width}" y="{base + _CURVE_HEIGHT + 28}" text-anchor="end" font-size="11">{escape(panel.x_unit)}</text>',
           f'<text x="{left + width}" y="{top + 16}" text-anchor="end" font-size="11">{escape(panel.y_unit)}</text>']
    for mark in up:
        out.append(f'<line x1="{left}" y1="{y(mark):.1f}" x2="{left + width}" y2="{y(mark):.1f}" stroke="{_GRID}"/>')
        out.append(f'<text x="{left - 6}" y="{y(mark) + 4:.1f}" text-anchor="end" font-size="11">{mark:g}</text>')
    out += [f'<text x="{x(mark):.1f}" y="{base + _CURVE_HEIGHT + 14}" text-anchor="middle" font-size="11">{mark:g}</text>'
            for mark in across]
    for number, (label, key, line) in enumerate(panel.lines):
        colour = _SHADES.get(key, _INK)
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [f'<circle cx="{x(a):.1f}" cy="{y(b):.1f}" r="2.5" fill="{colour}"/>' for a, b in line]
        height = base + 12 + 18 * number
        out.append(f'<line x1="{left + width + 14}" y1="{height}" x2="{left + width + 30}" y2="{height}" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{left + width + 36}" y="{height + 4}" font-size="11">{escape(label)}</text>')
    return out, _TITLE + _CURVE_HEIGHT + _AXIS + 14


def _bar(bar: Bar, y: float, x) -> list[str]:
    middle = y + _BAR / 2
    out = [f'<text x="{_LEFT - 8}" y="{middle + 4:.1f}" text-anchor="end">{escape(bar.label)}</text>']
    if bar.summary is None:
        return [*out, f'<text x="{_LEFT + 6}" y="{middle + 4:.1f}" font-style="italic">not measured</text>']
    s = bar.summary
    out.append(f'<rect x="{_LEFT}" y="{y:.1f}" width="{max(1.0, x(s.median) - _LEFT):.1f}" height="{_BAR}" fill="{bar.colour}"/>')
    out.append(f'<path d="M{x(s.low):.1f} {middle:.1f}H{x(s.high):.1f}M{x(s.low):.1f} {middle - 4:.1f}v8M{x(s.high):.1f} '
               f'{middle - 4:.1f}v8" stroke="{_INK}" fill="none"/>')
    out.append(f'<text x="{max(x(s.median), x(s.high)) + 6:.1f}" y="{middle + 4:.1f}">{s.median:.3g}</text>')
    return out


def _colour(key: str, entry: dict) -> str:
    return _OURS if key.startswith("trivium") else _USER if entry["group"] == "user" else _KERNEL
