"""Small pictures as SVG, whose colours are those of the page, light or dark."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Mapping, Sequence

from reproduction.experiments.claims import Ratio

#: A claim's picture: its size, the margins of its axis, and how much of a decade it shows at least.
_WIDTH, _HEIGHT, _MARGIN, _LEAST = 320.0, 58.0, 14.0, 0.5
#: Factors further from 1 than this end at the edge.
_FURTHEST = 1e4

#: Problem to engine to errors in per cent, one a seed, and the published one if there is.
Errors = Mapping[str, Mapping[str, tuple[Sequence[float], float | None]]]


def ratio_picture(ratio: Ratio) -> str:
    """A ratio on a logarithmic axis with its interval, a line at 1 and a diamond where it was published."""
    shown = [_kept(value) for value in (ratio.value, ratio.low, ratio.high, ratio.published or 1.0, 1.0)]
    low, high = math.log10(min(shown)), math.log10(max(shown))
    room = max(0.08 * (high - low), (_LEAST - (high - low)) / 2)
    axis = _Axis(low - room, high + room, _MARGIN, _WIDTH - _MARGIN)
    middle = 22.0
    one = axis(0.0)
    parts = [
        _line(one, 6, one, 38, "one"),
        _line(axis.of(ratio.low), middle, axis.of(ratio.high), middle, "interval"),
        f'<circle cx="{axis.of(ratio.value):.1f}" cy="{middle:g}" r="4.5" class="dot"/>',
    ]
    if ratio.published is not None:
        parts.append(_diamond(axis.of(ratio.published), middle))
    edge = 38.0
    parts += [_text(one, 52, "1×", "tick", _anchor(one, edge))]
    where = axis.of(ratio.value)
    if abs(where - one) > 40:
        parts.append(_text(where, 52, _times(ratio.value), "tick", _anchor(where, edge)))
    else:  # above the dot and off the line, as the place below is taken; exactly, as it is close to 1
        side, anchor = (5, "start") if where >= one else (-5, "end")
        parts.append(_text(where + side, 12, f"{ratio.value:.3g}×", "tick", anchor))
    published = "" if ratio.published is None else f", published {_times(ratio.published)}"
    told = f"{ratio.of}: {_times(ratio.value)}, from {_times(ratio.low)} to {_times(ratio.high)}{published}"
    return _svg(_WIDTH, _HEIGHT, parts, told, "ratio")


def overview(errors: Errors) -> str:
    """Every run a dot, by problem and engine, on one axis of errors; a bar is the median, a diamond is published."""
    every = [value for of in errors.values() for seeds, theirs in of.values() for value in (*seeds, theirs) if value]
    if not every:
        return ""
    width, left, line = 480.0, 66.0, 17.0
    low, high = (round_(math.log10(value)) for round_, value in ((math.floor, min(every)), (math.ceil, max(every))))
    axis = _Axis(low, high, left, width - 16)
    parts, top = [], 8.0
    bottom = top + sum(26 + line * len(of) for of in errors.values())
    for power in range(low, high + 1):
        parts.append(_line(axis(power), top, axis(power), bottom, "grid"))
        parts.append(_text(axis(power), bottom + 16, f"{10.0**power:g} %", "tick", "middle"))
    for problem, of in errors.items():
        parts.append(_text(4, top + 16, problem, "name", "start"))
        top += 24
        for number, (engine, (seeds, theirs)) in enumerate(of.items()):
            middle = top + line * (number + 0.5)
            parts.append(_text(left - 10, middle + 4, engine, "tick", "end"))
            parts += [f'<circle cx="{axis.of(v):.1f}" cy="{middle:.1f}" r="3.5" class="dot seed"/>' for v in seeds]
            if seeds:
                at = axis.of(statistics.median(seeds))
                parts.append(_line(at, middle - 7, at, middle + 7, "median"))
            if theirs:
                parts.append(_diamond(axis.of(theirs), middle))
        top += line * len(of) + 2
    told = "Relative L2 error in per cent of every run by problem and engine; diamonds are the published means."
    return _svg(width, bottom + 24, parts, told, "overview")


class _Axis:
    """From powers of ten, or numbers, to where they stand."""

    def __init__(self, low: float, high: float, left: float, right: float):
        self.low, self.left, self.scale = low, left, (right - left) / (high - low)

    def __call__(self, power: float) -> float:
        return self.left + (power - self.low) * self.scale

    def of(self, value: float) -> float:
        return self(math.log10(_kept(value)))


def _kept(value: float) -> float:
    """A number that a picture can show."""
    return min(max(value, 1 / _FURTHEST), _FURTHEST) if math.isfinite(value) else _FURTHEST


def _times(value: float) -> str:
    return f"{value:.2g}×" if value < 99.5 else f"{value:.0f}×"


def _anchor(x: float, edge: float) -> str:
    return "start" if x < edge else "end" if x > _WIDTH - edge else "middle"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _diamond(x: float, y: float) -> str:
    return f'<path d="M{x:.1f} {y - 7:.1f}l6 7l-6 7l-6 -7z" class="published"/>'


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _svg(width: float, height: float, parts: Sequence[str], told: str, kind: str) -> str:
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" class="{kind}" role="img" aria-label="{html.escape(told)}">'
        f"{''.join(parts)}</svg>"
    )
