"""Converts terminal output with colours (ECMA-48 SGR) on stdin to an SVG of monospace `text` elements on stdout.

    script -qec "ringreel top demo.ring --once --size 100x30" /dev/null | python3 scripts/ansi_to_svg.py > top.svg
    tmux capture-pane -e -p | python3 scripts/ansi_to_svg.py > top.svg

scripts/picture_of_top.sh remakes docs/operations/top.svg in the second way.

Supports colours 30-37, 90-97 and their backgrounds, bold, dim, underlined and reversed; ignores other sequences.
"""

import re
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, SIZE, EDGE = 8.4, 17, 14, 12  # cell width and height, font size, and margin, in pixels
BACK, FORE = "#16181d", "#d7dae0"
COLOURS = ["#16181d", "#e5626e", "#8cc570", "#e0b96a", "#5aa2e6", "#c586d8", "#4fb8c4", "#d7dae0"]
FAINT = "#6c7380"
SGR = re.compile(r"\x1b\[([0-9;]*)m|\x1b\[[0-9;?]*[A-Za-z]")


def colour(code, bright):
    return FAINT if bright and code == 0 else COLOURS[code]


def cells(line, look):
    """Returns (letter, colour, background, bold) of each column. `look` continues from line to line."""
    fore, back, bold, reverse = look
    at = 0
    for part in [*SGR.finditer(line), None]:
        for letter in line[at : part.start() if part else len(line)]:
            yield (letter, back or BACK, fore, bold) if reverse else (letter, fore, back, bold)
        if part is None:
            look[:] = fore, back, bold, reverse
            return
        at = part.end()
        codes = re.sub(r"\b([34])8;5;([0-7])\b", r"\g<1>\2", part[1] or "0") if part[1] is not None else ""
        codes = re.sub(r"\b38;5;8\b", "90", codes)
        for code in map(int, filter(None, codes.split(";"))):
            match code:
                case 0:
                    fore, back, bold, reverse = FORE, None, False, False
                case 1:
                    bold = True
                case 22:
                    bold = False
                case 7 | 27:
                    reverse = code == 7
                case 39:
                    fore = FORE
                case 49:
                    back = None
                case _ if 30 <= code <= 37 or 90 <= code <= 97:
                    fore = colour(code % 10, code >= 90)
                case _ if 40 <= code <= 47 or 100 <= code <= 107:
                    back = colour(code % 10, code >= 100)


def runs(row):
    """Groups adjacent cells of one style: start, text and style. Omits blanks without a background."""
    begin = 0
    while begin < len(row):
        look = row[begin][1:]
        end = begin
        while end < len(row) and row[end][1:] == look:
            end += 1
        text = "".join(cell[0] for cell in row[begin:end])
        if text.strip() or look[1]:
            yield begin, text, look
        begin = end


def dots(text, x, y):
    """Draws Braille letters as squares, because few fonts have all of them in one width."""
    for number, letter in enumerate(text):
        for bit in range(8):
            if 0x2800 <= ord(letter) < 0x2900 and ord(letter) - 0x2800 >> bit & 1:
                column, row = (bit // 3, bit % 3) if bit < 6 else (bit - 6, 3)
                yield f"M{x + (number + column / 2) * WIDTH + 1:.1f} {y + row * HEIGHT / 4 + 1:.1f}h2v2h-2z"


def svg(lines):
    look = [FORE, None, False, False]
    rows = [list(cells(line.rstrip("\r\n"), look)) for line in lines]
    width, height = max(map(len, rows), default=0) * WIDTH + 2 * EDGE, len(rows) * HEIGHT + 2 * EDGE
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}">'
    yield f'<rect width="100%" height="100%" rx="6" fill="{BACK}"/>'
    yield f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}" xml:space="preserve">'
    for number, row in enumerate(rows):
        y = EDGE + number * HEIGHT
        for begin, text, (fore, back, bold) in runs(row):
            x, length = EDGE + begin * WIDTH, len(text) * WIDTH
            if back:
                yield f'<rect x="{x:g}" y="{y}" width="{length:g}" height="{HEIGHT}" fill="{back}"/>'
            if path := "".join(dots(text, x, y)):
                yield f'<path d="{path}" fill="{fore}"/>'
                text = "".join(" " if 0x2800 <= ord(c) < 0x2900 else c for c in text)
            if text.strip():
                weight = ' font-weight="bold"' if bold else ""
                place = f'x="{x:g}" y="{y + 13}" textLength="{length:g}" lengthAdjust="spacingAndGlyphs"'
                yield f'<text {place} fill="{fore}"{weight}>{escape(text)}</text>'
    yield "</g></svg>"


if __name__ == "__main__":
    for element in svg(sys.stdin.read().splitlines()):
        print(element)
