"""Geometry of the report's charts: positions in percent of the width, so that charts fit any screen unscaled."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HEAT_STEPS = 10
"""Classes of the sequential colour scale, h0 (least) to h9."""

SERIES = 7
"""Colours that tell arms apart (Okabe-Ito); further arms are drawn as one grey rest."""


@dataclass(frozen=True)
class Scale:
    """A linear axis from `low` to `high` with round ticks."""

    low: float
    high: float
    step: float

    def at(self, value: float) -> float:
        """Position in percent of the width, 0 to 100."""
        return round(100 * (min(max(value, self.low), self.high) - self.low) / (self.high - self.low), 3)

    @property
    def ticks(self) -> list[float]:
        count = round((self.high - self.low) / self.step)
        return [round(self.low + self.step * index, 10) for index in range(count + 1)]


def nice_scale(values: Iterable[float | None], *, least_ticks: int = 4, around: float | None = None) -> Scale:
    """The tightest axis on round numbers that holds all values (and `around`), with at least `least_ticks` steps."""
    known = [value for value in values if value is not None and math.isfinite(value)]
    if around is not None:
        known.append(around)
    low, high = min(known, default=0.0), max(known, default=1.0)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    raw = (high - low) / least_ticks
    power = 10.0 ** math.floor(math.log10(raw))
    step = max(factor * power for factor in (1, 2, 2.5, 5) if factor * power <= raw * (1 + 1e-9))
    return Scale(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step, step)


def heat(value: float | None, low: float = 0.0, high: float = 1.0) -> str:
    """Colour class of a value on the sequential scale; `hx` where there is none."""
    if value is None:
        return "hx"
    share = (value - low) / (high - low) if high > low else 0.0
    return f"h{min(HEAT_STEPS - 1, max(0, int(share * HEAT_STEPS)))}"


def short_count(count: int) -> str:
    """A count that fits above a narrow bar: thousands with one decimal."""
    return f"{count}" if count < 1000 else f"{count / 1000:.1f}k"


@dataclass(frozen=True)
class Segment:
    """One part of a stacked bar, in percent of the width."""

    label: str
    series: int
    """0 no memory, 1 to 7 providers, 8 the rest."""
    start: float
    width: float
    share: float


def series_of(shares: Sequence[dict[str, float]], providers: Sequence[str], none: str) -> dict[str, int]:
    """Colour of every arm: no memory 0, the seven most used providers 1 to 7 in the config's order, the rest 8."""
    use = {name: max((part.get(name, 0.0) for part in shares), default=0.0) for name in providers}
    first = sorted(providers, key=lambda name: (-use[name], providers.index(name)))[:SERIES]
    coloured = [name for name in providers if name in first]
    return {none: 0} | {name: coloured.index(name) + 1 if name in coloured else SERIES + 1 for name in providers}


def stack(shares: dict[str, float], series: dict[str, int]) -> list[Segment]:
    """A stacked bar of shares that sum to 1; arms without a colour of their own are one segment at the end."""
    parts: list[tuple[str, int, float]] = [
        (arm, series[arm], share) for arm, share in shares.items() if share > 0 and series[arm] <= SERIES
    ]
    parts.sort(key=lambda part: part[1])
    rest = math.fsum(share for arm, share in shares.items() if series[arm] > SERIES)
    if rest > 0:
        parts.append(("others", SERIES + 1, rest))
    segments, start = [], 0.0
    for label, colour, share in parts:
        segments.append(Segment(label, colour, round(start, 3), round(100 * share, 3), share))
        start += 100 * share
    return segments


@dataclass(frozen=True)
class Mark:
    """One labelled position on the headroom line."""

    label: str
    value: float
    x: float
    lane: int
    """Distance from the line in text lines, 1 nearest."""
    above: bool
    emphasis: bool

    @property
    def anchor(self) -> str:
        """Which end of the label stands at the mark, so that it stays inside the chart."""
        return "start" if self.x < 50 else "end"


def polyline(points: Sequence[tuple[float, float]], across: Scale, up: Scale) -> str:
    """SVG points in a 100 by 100 box."""
    return " ".join(f"{across.at(x):.2f},{100 - up.at(y):.2f}" for x, y in points)


def smooth(values: Sequence[float], window: int) -> list[float]:
    """Trailing mean over up to `window` values."""
    return [math.fsum(values[max(0, i + 1 - window) : i + 1]) / min(window, i + 1) for i in range(len(values))]
