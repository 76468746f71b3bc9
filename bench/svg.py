"""Lines on two axes, written by hand as SVG that follows the reader's light or dark theme."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 780, 400, 64, 216, 48, 52
LABEL_GAP = 15.0
COLOURS = ("#0b7285", "#66b2bf", "#868e96", "#adb5bd", "#e8590c", "#e8a33d", "#9c36b5")
STYLE = (
    "text{fill:#1f2933}.axis{stroke:#52606d}.grid{stroke:#e4e7eb}.page{fill:#fff}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.axis{stroke:#9aa5b1}.grid{stroke:#323f4b}"
    ".page{fill:#0d1117}}"
)


@dataclass(frozen=True)
class Line:
    """A contestant: its name and its points, from left to right."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """A title, and the values that are written at it. Logarithmic, or else from zero."""

    title: str
    ticks: Sequence[float]
    is_logarithmic: bool = False
    names: Sequence[str] = ()

    def place(self, value: float) -> float:
        """Where a value lies between the first tick, at 0, and the last, at 1."""
        first, last = self.ticks[0], self.ticks[-1]
        if self.is_logarithmic:
            return log10(value / first) / log10(last / first)
        return (value - first) / (last - first)

    def labels(self) -> list[tuple[float, str]]:
        names = self.names or [f"{tick:,g}" for tick in self.ticks]
        return list(zip(self.ticks, names, strict=True))


def powers_of_ten(title: str, values: Sequence[float]) -> Axis:
    """A logarithmic axis that has room for the values."""
    low, high = floor(log10(min(values))), ceil(log10(max(values)))
    return Axis(title, [10.0**power for power in range(low, max(high, low + 1) + 1)], is_logarithmic=True)


def from_zero(title: str, values: Sequence[float]) -> Axis:
    """A linear axis from zero that has room for the values."""
    rough = max(values) / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    return Axis(title, [step * number for number in range(ceil(max(values) / step) + 1)])


def line_chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """All lines in one picture, each named at its right end."""

    def across(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * x.place(value)

    def down(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y.place(value)

    parts = [f'<text x="12" y="24" font-size="15" font-weight="600">{escape(title)}</text>']
    for value, label in y.labels():
        at = f"{down(value):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{at}" x2="{WIDTH - RIGHT}" y2="{at}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" dy="4" text-anchor="end">{label}</text>')
    for value, label in x.labels():
        parts.append(
            f'<text x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>'
        )
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" y1="{bottom}" x2="{WIDTH - RIGHT}" y2="{bottom}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{escape(x.title)}</text>')
    parts.append(f'<text x="{LEFT - 8}" y="{TOP - 8}" font-size="11">{escape(y.title)}</text>')
    ends = _apart([down(line.points[-1][1]) for line in lines])
    for line, colour, end in zip(lines, COLOURS, ends, strict=False):
        corners = [(across(left), down(up)) for left, up in line.points]
        path = " ".join(f"{left:.1f},{up:.1f}" for left, up in corners)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        parts += [f'<circle cx="{left:.1f}" cy="{up:.1f}" r="3.5" fill="{colour}"/>' for left, up in corners]
        last, height = corners[-1]
        edge = WIDTH - RIGHT + 12
        parts.append(
            f'<line x1="{last + 4:.1f}" y1="{height:.1f}" x2="{edge}" y2="{end:.1f}" stroke="{colour}"'
            ' stroke-width="1" stroke-dasharray="2 3"/>'
        )
        parts.append(f'<circle cx="{edge + 6}" cy="{end:.1f}" r="4" fill="{colour}"/>')
        parts.append(f'<text x="{edge + 15}" y="{end:.1f}" dy="4">{escape(line.name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12">\n<title>{escape(title)}</title>\n'
        f'<style>{STYLE}</style>\n<rect class="page" width="100%" height="100%"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _apart(heights: Sequence[float]) -> list[float]:
    """Heights for labels, so that none lies over another, in the order they were given."""
    placed = dict.fromkeys(range(len(heights)), 0.0)
    free = 0.0
    for index in sorted(placed, key=heights.__getitem__):
        placed[index] = max(heights[index], free)
        free = placed[index] + LABEL_GAP
    over = max(0.0, free - LABEL_GAP - (HEIGHT - BOTTOM))
    return [height - over for height in placed.values()]
