"""Lines over time as an SVG file: panels one below the other, all over the same seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

_WIDTH, _HEIGHT, _MARGIN = 960, 220, 60
# Told apart also by people who do not see red and green as different (Okabe and Ito).
_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_STEPS: Final = 4

Line = Sequence[tuple[float, float]]
"""Points (seconds since the beginning, value), by time."""


@dataclass(frozen=True)
class Panel:
    """One part of the chart: lines by their names, over a common axis that begins at 0."""

    title: str
    lines: Mapping[str, Line]


def svg(panels: Sequence[Panel]) -> str:
    """The chart as the text of an SVG file."""
    last = max((at for panel in panels for line in panel.lines.values() for at, _ in line), default=1.0) or 1.0
    height = len(panels) * (_HEIGHT + _MARGIN) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        parts += _panel(panel, last, _MARGIN + number * (_HEIGHT + _MARGIN))
    return "\n".join([*parts, "</svg>", ""])


def _panel(panel: Panel, last: float, top: int) -> list[str]:
    most = max((value for line in panel.lines.values() for _, value in line), default=1.0) or 1.0
    right, bottom = _WIDTH - _MARGIN, top + _HEIGHT
    parts = [f'<text x="{_MARGIN}" y="{top - 10}" font-weight="bold">{escape(panel.title)}</text>']
    for step in range(_STEPS + 1):
        y = bottom - _HEIGHT * step / _STEPS
        x = _MARGIN + (right - _MARGIN) * step / _STEPS
        parts += [
            f'<line x1="{_MARGIN}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>',
            f'<text x="{_MARGIN - 6}" y="{y + 4}" text-anchor="end">{most * step / _STEPS:.3g}</text>',
            f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{last * step / _STEPS:.0f} s</text>',
        ]
    for number, (name, line) in enumerate(panel.lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(
            f"{_MARGIN + (right - _MARGIN) * at / last:.1f},{bottom - _HEIGHT * value / most:.1f}" for at, value in line
        )
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>',
            f'<text x="{right - 120 * number}" y="{top - 10}" text-anchor="end" fill="{colour}">{escape(name)}</text>',
        ]
    return parts
