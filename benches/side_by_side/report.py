"""Writes the tables of a run for the terminal, and docs/internals/benchmarks.md, .json and .svg."""

import json
from pathlib import Path
from typing import Any

import plot
from figures import METRICS, Cell, Figures, digits, middle, ratios
from samples import WORKLOADS
from targets import verdicts

TITLES = {"random": "random bytes", "brain": "a smooth image and its labels"}
VARIANTS = {
    "checked": "",
    "unchecked": "VERIFY: never",
    "kept": "one map for all passes",
    "new": "a map for each pass",
}
PAGE = Path(__file__).with_name("page.md")


def as_json(found: dict[str, Any]) -> str:
    """Returns the run as JSON, with one line per measurement."""
    rows = ",\n".join(f"  {json.dumps(row)}" for row in found["measured"])
    rest = json.dumps({key: value for key, value in found.items() if key != "measured"}, indent=1)
    return f'{rest[:-2]},\n "measured": [\n{rows}\n ]\n}}\n'


def shown(value: float, unit: str) -> str:
    if unit == "GB/s":
        return digits(value / 1e9)
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value / 1e3:.3g} k"


def figure(figures: Figures, cell: Cell, peer: str, variant: str, metric: str) -> tuple[str, str]:
    """Returns the median with the slowest and the fastest round, and the ratio to the baseline of the same round."""
    rates = figures.rates(cell, peer, variant, metric)
    if not rates:
        return "–", ""
    unit = "records/s" if cell[0] == "tiny" else "GB/s"
    baseline = figures.baseline(cell, figures.peers[peer]["language"], metric)
    ratio = digits(middle(ratios(rates, baseline))) if baseline else ""
    return f"{shown(middle(rates), unit)} ({shown(min(rates), unit)}..{shown(max(rates), unit)})", ratio


def title(cell: Cell, found: dict[str, Any]) -> str:
    work, kind = WORKLOADS[cell[0]], found["settings"]["filesystems"][cell[2]]
    return f"{work.title}, {TITLES[cell[1]]}, {kind}"


def name(peer: str, variant: str) -> str:
    return ", ".join(word for word in (peer, VARIANTS.get(variant, variant)) if word)


def table(figures: Figures, cell: Cell) -> list[list[str]]:
    unit = "records/s" if cell[0] == "tiny" else "GB/s"
    metrics = figures.metrics(cell)
    rows = [["", *(f"{METRICS[metric]}, {unit}" if n == 0 else "x" for metric in metrics for n in range(2))]]
    for peer, variant in figures.rows(cell):
        row = [name(peer, variant)]
        first = variant == figures.peers[peer]["reads"][0]
        for metric in metrics:
            row += figure(figures, cell, peer, variant, metric) if first or metric != "write" else ("", "")
        rows.append(row)
    return rows


def aligned(rows: list[list[str]]) -> str:
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    lines = ("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def markdown(rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def judged(figures: Figures) -> list[list[str]]:
    rows = [["target", "at least", "found", "result"]]
    for verdict in verdicts(figures):
        found = "; ".join(f"{where}: {digits(value)}" for where, value in verdict.found) or "not measured"
        said = {True: "met", False: "NOT MET", None: "–"}[verdict.met]
        goal = f"at most {verdict.goal} ms" if verdict.at_most else f"{verdict.goal} x"
        rows.append([verdict.text, goal, found, said])
    return rows


def give(found: dict[str, Any], docs: Path | None) -> None:
    figures = Figures(found)
    for cell in figures.cells:
        print(f"\n{title(cell, found)}")
        print(aligned(table(figures, cell)))
    print("\nTargets")
    print(aligned(judged(figures)))
    for peer, why in found["missing"].items():
        print(f"MISSING: {peer}: {why.splitlines()[0]}")
    if docs is not None:
        (docs / "benchmarks.json").write_text(as_json(found))
        (docs / "benchmarks.svg").write_text(plot.svg(figures))
        (docs / "benchmarks.md").write_text(page(figures))


def page(figures: Figures) -> str:
    found = figures.found
    tables = []
    for cell in figures.cells:
        tables.append(f"### {title(cell, found)}\n\n{markdown(table(figures, cell))}\n")
    machine = found["machine"]
    lines = [f"- {key.replace('_', ' ')}: {value}" for key, value in machine.items() if key != "load" and value]
    loads = ", ".join(f"{load:.2f}" for load in machine["load"])
    lines.append(f"- load average before the tables were written: {loads}")
    versions = {}
    for peer in found["peers"].values():
        versions |= peer["versions"]
    missing = [f"**{peer} is missing:** {why.splitlines()[0]}" for peer, why in found["missing"].items()]
    return PAGE.read_text().format(
        seconds=round(found["seconds"]["measuring"]),
        **{key: found["settings"][key] for key in ("mb", "rounds", "later")},
        machine="\n".join(lines),
        versions=", ".join(f"{package} {version}" for package, version in sorted(versions.items())),
        missing="\n\n".join(missing) or "All peers were measured.",
        counts=markdown(counted(figures)),
        verified=round(sum(found["verified"].values()) / 2**30, 1),
        tables="\n".join(tables),
        targets=markdown(judged(figures)),
    )


def counted(figures: Figures) -> list[list[str]]:
    """Returns a table of the number of samples per peer and workload."""
    works = list(dict.fromkeys(cell[0] for cell in figures.cells))
    rows = [["", *(WORKLOADS[work].title for work in works)]]
    for peer in figures.peers:
        counts = [max(figures.count(cell, peer) for cell in figures.cells if cell[0] == work) for work in works]
        rows.append([peer, *(f"{count:,}" if count else "–" for count in counts)])
    return rows
