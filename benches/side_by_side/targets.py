"""ringreel's targets, and whether they are met, from the same figures as the tables."""

import dataclasses
from collections.abc import Iterator

from figures import Cell, Figures, middle, ratios

RUST, PYTHON = "ringreel, Rust", "ringreel, Python"
READS = ("sequential", "random")


@dataclasses.dataclass
class Verdict:
    text: str
    #: The figures, one per cell.
    found: list[tuple[str, float]]
    goal: float
    at_most: bool = False

    @property
    def met(self) -> bool | None:
        if not self.found:
            return None
        return all(value <= self.goal if self.at_most else value >= self.goal for _, value in self.found)


def best(figures: Figures, cell: Cell, prefix: str, variant: str, metric: str) -> list[float]:
    """The rates of the fastest peer whose name begins with `prefix`."""
    found = [figures.rates(cell, name, variant, metric) for name in figures.peers if name.startswith(prefix)]
    return max(found, key=lambda rates: middle(rates) if rates else 0, default=[])


def verdicts(figures: Figures) -> Iterator[Verdict]:
    def compared(
        workload: str, text: str, ours: str, variant: str, metric: str, other: str, goal: float, place: str = ""
    ) -> Verdict:
        """`other`: a peer's name, or "plain" for the baseline. `place`: only in this place."""
        found = []
        language = "Rust" if ours == RUST else "Python"
        for cell in figures.cells:
            if cell[0] != workload or (place and cell[2] != place):
                continue
            rates = best(figures, cell, ours, variant, metric)
            if other == "plain":
                others = figures.baseline(cell, language, metric)
            else:
                others = best(figures, cell, other, "", metric)
            if rates and others:
                found.append((f"{cell[1]}, {cell[2]}", middle(ratios(rates, others))))
        return Verdict(text, found, goal)

    for ours in (RUST, PYTHON):
        name = ours.replace("ringreel, ", "")
        yield compared("large", f"large, {name}: write, against write(2)", ours, "", "write", "plain", 0.9)
        yield compared("large", f"large, {name}: write, against Arrow IPC", ours, "", "write", "Arrow IPC", 1)
        yield compared("large", f"large, {name}: write, against Wirehead", ours, "", "write", "Wirehead", 10)
        for read in READS:
            said = f"large, {name}: {read}"
            against = "against a map made for the pass"
            first = f"{said}, first pass, {against}"
            # If the page cache is mapped in huge pages, a pass costs one read of memory, and the checksum another one.
            yield compared("large", first, ours, "checked", read, "plain", 0.6, "tmpfs")
            yield compared("large", first, ours, "checked", read, "plain", 0.5, "disk")
            kept = "against a kept map"
            yield compared("large", f"{said}, later, {kept}", ours, "checked", f"{read} later", "plain", 0.95)
            yield compared("large", f"{said}, unchecked, {against}", ours, "unchecked", read, "plain", 0.95)
            later = f"{said}, unchecked, later, {kept}"
            yield compared("large", later, ours, "unchecked", f"{read} later", "plain", 0.95)
            for other, goal in (("mxnet RecordIO", 5), ("Wirehead", 20)):
                yield compared("large", f"{said}, first pass, against {other}", ours, "checked", read, other, goal)
            text = f"{said}, later, against mxnet RecordIO"
            yield compared("large", text, ours, "checked", f"{read} later", "mxnet RecordIO", 5)
        for work, size in (("medium", "2 x 128³"), ("small", "2 x 64³")):
            yield compared(work, f"{size}, {name}: write, against write(2)", ours, "", "write", "plain", 0.8)
            yield compared(work, f"{size}, {name}: write, against mxnet RecordIO", ours, "", "write", "mxnet RecordIO", 1)
            for read in READS:
                said = f"{size}, {name}: {read}, first pass, against"
                yield compared(work, f"{said} a map made for the pass", ours, "checked", read, "plain", 0.6, "tmpfs")
                yield compared(work, f"{said} a map made for the pass", ours, "checked", read, "plain", 0.5, "disk")
                yield compared(work, f"{said} mxnet RecordIO", ours, "checked", read, "mxnet RecordIO", 1.2)
                said, later = f"{size}, {name}: {read}, later, against", f"{read} later"
                yield compared(work, f"{said} a kept map", ours, "checked", later, "plain", 0.8)
                yield compared(work, f"{said} mxnet RecordIO", ours, "checked", later, "mxnet RecordIO", 2)
        for metric in ("write", *READS):
            said = f"4 KiB, {name}: {metric}, against Arrow IPC"
            yield compared("page", said, ours, "checked", metric, "Arrow IPC", 1)
    for metric in ("write", *READS):
        said = f"100 B, Rust: {metric}, against the bare loop"
        yield compared("tiny", said, RUST, "checked", metric, "bare loop", 0.3)
    for metric in ("write", *READS):
        for other, goal in (("mxnet RecordIO", 10), ("Arrow IPC", 1)):
            said = f"100 B, Python: {metric}, against {other}"
            yield compared("tiny", said, PYTHON, "checked", metric, other, goal)
    for name in dict.fromkeys(row["peer"] for row in figures.found["opened"]):
        seconds = [row["seconds"] * 1e3 for row in figures.found["opened"] if row["peer"] == name]
        found = [("ms", middle(seconds))]
        text = f"{name.replace('ringreel, ', '')}: from opening to the first sample of 1,000,000"
        yield Verdict(text, found, 5, at_most=True)
