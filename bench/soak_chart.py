"""A soak as lines over time, each as a multiple of its own beginning, written by hand as SVG."""

from html import escape
from statistics import median

from bench.report import number as digits

WIDTH, HEIGHT, LEFT, RIGHT, TOP = 800, 150, 46, 210, 28
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c")
PANELS = {
    "Latency, median": ("step, ms", "question, ms", "answer, ms", "deliver, ms", "list, ms"),
    "Bytes of tables and indexes for each live row": ("session, bytes", "event, bytes", "message, bytes"),
    "Memory of a process": ("write 0, MB", "work 0, MB", "stream 0, MB", "clean 0, MB", "look 0, MB"),
    "Connections": ("connections",),
}
MOST = 3.0


def chart(samples: list[dict[str, float]]) -> str:
    """A panel for each kind, the first quarter of each line being 1."""
    parts = []
    for number, (title, names) in enumerate(PANELS.items()):
        parts.append(_panel(samples, title, names, number * (HEIGHT + TOP + 14)))
    height = len(PANELS) * (HEIGHT + TOP + 14) + 24
    end = samples[-1]["s"] / 60
    caption = f"0 to {end:.0f} minutes; 1 is the first quarter"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="12" fill="#1f2933">\n'
        f"<title>Mixed load over {end:.0f} minutes; 1 is the first quarter</title>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        + "\n".join(parts)
        + f'\n<text x="{LEFT}" y="{height - 8}">{caption}</text>\n</svg>\n'
    )


def _panel(samples: list[dict[str, float]], title: str, names: tuple[str, ...], top: float) -> str:
    end = samples[-1]["s"]

    def place(seconds: float, value: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * seconds / end
        y = top + TOP + HEIGHT - HEIGHT * min(value, MOST) / MOST
        return f"{x:.1f},{y:.1f}"

    parts = [f'<text x="12" y="{top + 18}" font-weight="bold">{escape(title)}</text>']
    for level in (0, 1, 2, 3):
        (x, y), (x2, _) = (place(seconds, level).split(",") for seconds in (0, end))
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x2}" y2="{y}" stroke="#d9dee4"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{float(y) + 4}" text-anchor="end">{level}</text>')
    for number, name in enumerate(names):
        values = [(sample["s"], sample[name]) for sample in samples if name in sample]
        if not values:
            continue
        base = median(value for _, value in values[: max(len(values) // 4, 1)]) or 1
        points = " ".join(place(seconds, value / base) for seconds, value in values)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        label = top + TOP + 14 + number * 18
        text = escape(f"{name} (1 = {digits(base)})")
        parts.append(f'<text x="{WIDTH - RIGHT + 8}" y="{label}" fill="{colour}">{text}</text>')
    return "\n".join(parts)
