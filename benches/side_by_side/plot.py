"""The picture of a run: a panel per workload and phase, a bar per peer, on tmpfs if it was measured."""

import math
from collections.abc import Callable
from html import escape

from figures import Cell, Figures, digits, middle
from samples import WORKLOADS

PHASES = {"write": "write", "sequential": "read in order, first pass", "random": "read in any order, first pass"}
LINE, TITLE, NAMES, BARS, GAP = 18, 46, 205, 190, 24
STYLE = """
text { font: 12px system-ui, sans-serif; fill: #6e7781; }
.title { font-weight: 600; }
.plain { fill: #8c959f; } .ours { fill: #2f81f7; } .other { fill: #c98a2b; }
.whisker { stroke: #6e7781; stroke-width: 1.2; }
@media (prefers-color-scheme: dark) { text { fill: #b1bac4; } .whisker { stroke: #b1bac4; } }
"""


def svg(figures: Figures) -> str:
    cells = chosen(figures)
    width = NAMES + len(PHASES) * (BARS + GAP) + 60
    parts, top = [], 8
    for cell in cells:
        drawn, height = panel(figures, cell, top)
        parts.append(drawn)
        top += height
    view = f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" viewBox="0 0 {width} {top}" role="img"'
    title = "<title>Rates of ringreel and of other formats, medians, with the slowest and the fastest round</title>"
    return f"<svg {view}>{title}<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def chosen(figures: Figures) -> list[Cell]:
    """The first cell of each workload: random bytes on tmpfs, if measured."""
    first: dict[str, Cell] = {}
    for cell in figures.cells:
        first.setdefault(cell[0], cell)
    return list(first.values())


def panel(figures: Figures, cell: Cell, top: int) -> tuple[str, int]:
    rows = [(peer, figures.peers[peer]["reads"]) for peer in dict.fromkeys(peer for peer, _ in figures.rows(cell))]
    tiny = cell[0] == "tiny"
    unit = "million records/s" if tiny else "GB/s"
    kind = figures.found["settings"]["filesystems"][cell[2]]
    # Peers with many samples per call are hundreds of times as fast as those with one.
    scale = linear if WORKLOADS[cell[0]].is_volume else logarithmic
    head = f"{WORKLOADS[cell[0]].title}, {kind}, {unit}" + (", logarithmic" if scale is logarithmic else "")
    drawn = [f'<text class="title" x="8" y="{top + 16}">{escape(head)}</text>']
    for n, (metric, text) in enumerate(PHASES.items()):
        left = NAMES + n * (BARS + GAP)
        drawn.append(f'<text x="{left}" y="{top + 34}">{escape(text)}</text>')
        found = {peer: figures.rates(cell, peer, "new" if "new" in reads else reads[0], metric) for peer, reads in rows}
        every = [rate for rates in found.values() for rate in rates]
        least, most = min(every, default=1), max(every, default=1)
        for row, (peer, _) in enumerate(rows):
            y = top + TITLE + row * LINE
            if n == 0:
                drawn.append(f'<text x="{NAMES - 8}" y="{y + 11}" text-anchor="end">{escape(peer)}</text>')
            drawn.append(bar(found[peer], scale(least, most), left, y, look(peer), 1e6 if tiny else 1e9))
    return "\n".join(drawn), TITLE + len(rows) * LINE + 20


def look(peer: str) -> str:
    return "ours" if "ringreel" in peer else "plain" if peer.startswith(("plain", "bare")) else "other"


def linear(least: float, most: float) -> Callable[[float], float]:
    return lambda rate: rate / most * (BARS - 45)


def logarithmic(least: float, most: float) -> Callable[[float], float]:
    """The slowest peer has a visible bar, too."""
    begin = least / 2
    return lambda rate: math.log(rate / begin) / math.log(most / begin) * (BARS - 45)


def bar(rates: list[float], scale: Callable[[float], float], left: int, y: int, look: str, unit: float) -> str:
    if not rates:
        return f'<text x="{left}" y="{y + 11}">–</text>'
    wide, low, high = (left + scale(value) for value in (middle(rates), min(rates), max(rates)))
    text = digits(middle(rates) / unit)
    return (
        f'<rect class="{look}" x="{left}" y="{y + 2}" width="{max(wide - left, 1):.1f}" height="{LINE - 7}" rx="2"/>'
        f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 7.5}" y2="{y + 7.5}"/>'
        f'<text x="{max(high, wide) + 5:.1f}" y="{y + 11}">{text}</text>'
    )
