"""The step commit as a bar chart, written by hand as SVG."""

from html import escape
from math import log10

from bench.results import Results, Row

WIDTH, LEFT, RIGHT, BAR, GAP = 760, 200, 70, 18, 26
COLOURS = {"FLOOR": "#9aa5b1", "FLOOR-1": "#c3cbd4", "ours": "#0b7285", "ours, hopping": "#66b2bf"}
PEER = "#e8a33d"
SECTION = "step commit"


def chart(results: Results) -> str:
    """Times as long as FLOOR, for every contestant at every length of history; logarithmic."""
    operations = [f"history {length:,}" for length in (0, 100, 1_000, 5_000, 50_000)]
    groups = {name: _rows(results, name) for name in operations}
    groups = {name: rows for name, rows in groups.items() if rows}
    ratios = [row.ratio.middle for rows in groups.values() for row in rows if row.ratio]
    low, high = (min(ratios) / 1.5, max(ratios) * 1.2) if ratios else (0.1, 1.0)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * log10(value / low) / log10(high / low)

    parts, y = [], 30.0
    for name, rows in groups.items():
        parts.append(f'<text x="12" y="{y + 14}" font-weight="bold">{escape(name)} messages</text>')
        y += GAP
        for row in rows:
            assert row.ratio
            end = x(row.ratio.middle)
            colour = COLOURS.get(row.contestant, PEER)
            parts.append(
                f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(row.contestant)}</text>'
            )
            parts.append(
                f'<rect x="{LEFT}" y="{y}" width="{end - LEFT:.1f}" height="{BAR}" fill="{colour}"/>'
            )
            parts.append(f'<text x="{end + 6:.1f}" y="{y + 13}">{row.ratio.middle:.2g}</text>')
            y += GAP - 4
        y += 10
    one = x(1.0)
    line = f'<line x1="{one:.1f}" y1="26" x2="{one:.1f}" y2="{y}" stroke="#52606d" stroke-dasharray="3 3"/>'
    title = "Time of a step commit, FLOOR = 1 (logarithmic, shorter is better)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 10:.0f}" role="img"'
        f' font-family="system-ui, sans-serif" font-size="12" fill="#1f2933">\n'
        f'<title>{title}</title>\n<rect width="100%" height="100%" fill="#ffffff"/>\n'
        f'<text x="12" y="18" font-size="14">{title}</text>\n' + "\n".join([*parts, line]) + "\n</svg>\n"
    )


def _rows(results: Results, operation: str) -> list[Row]:
    return [row for row in results.rows if (row.section, row.operation) == (SECTION, operation) and row.ratio]
