"""Figures from the rows of a run: rates per round, medians, ratios of the same round."""

import statistics
from collections import defaultdict
from typing import Any

from samples import WORKLOADS

# The metrics of each peer: title, and name of the rates.
METRICS = {
    "write": "write",
    "sequential": "in order, first pass",
    "sequential later": "in order, later",
    "random": "any order, first pass",
    "random later": "any order, later",
    "sequential cold": "in order, from the disk",
    "random cold": "any order, from the disk",
}
# The baselines, by language and by whether samples are volumes.
PLAIN = {
    ("Python", True): "plain file",
    ("Python", False): "plain file, blocks of 1 MiB",
    ("Rust", True): "plain file, Rust",
    ("Rust", False): "plain file, Rust",
}
Cell = tuple[str, str, str]


class Figures:
    """`rates(cell, peer, variant, metric)`: a list, one for each round, in bytes (or samples) a second."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found = found
        self.peers: dict[str, dict[str, Any]] = found["peers"]
        self._rates: dict[tuple[Cell, str, str, str], list[float]] = defaultdict(list)
        self._counts: dict[tuple[Cell, str], int] = {}
        self.cells: list[Cell] = []
        for row in found["measured"]:
            cell = (row["workload"], row["content"], row["place"])
            if cell not in self.cells:
                self.cells.append(cell)
            self._counts[cell, row["peer"]] = row["count"]
            amount = row["count"] if row["workload"] == "tiny" else row["bytes"]
            key = (cell, row["peer"], row["variant"])
            self._rates[*key, row["phase"]].append(amount / row["seconds"])
            if row.get("later"):
                self._rates[*key, row["phase"] + " later"].append(amount / statistics.median(row["later"]))

    def rates(self, cell: Cell, peer: str, variant: str, metric: str) -> list[float]:
        return self._rates.get((cell, peer, "" if metric == "write" else variant, metric), [])

    def count(self, cell: Cell, peer: str) -> int:
        return self._counts.get((cell, peer), 0)

    def baseline(self, cell: Cell, language: str, metric: str) -> list[float]:
        """Rates of the baseline: write(2); a new map for first passes from the page cache; a kept map for others."""
        plain = PLAIN[language, WORKLOADS[cell[0]].is_volume]
        return self.rates(cell, plain, "new" if metric in ("sequential", "random") else "kept", metric)

    def metrics(self, cell: Cell) -> list[str]:
        """The metrics that were measured in a cell."""
        measured = {metric for (of, *_, metric) in self._rates if of == cell}
        return [metric for metric in METRICS if metric in measured]

    def rows(self, cell: Cell) -> list[tuple[str, str]]:
        """Peers and variants that were measured in a cell: baselines first, then ringreel, then other formats."""

        def rank(name: str) -> int:
            return 0 if name.startswith("plain") else 1 if name.startswith("bare") else 2 if "ringreel" in name else 3

        measured = {(peer, variant) for (of, peer, variant, _) in self._rates if of == cell}
        names = sorted({peer for peer, _ in measured}, key=lambda name: (rank(name), name))
        return [(name, read) for name in names for read in self.peers[name]["reads"] if (name, read) in measured]


def ratios(rates: list[float], others: list[float]) -> list[float]:
    """Ratios of the rates of the same rounds."""
    return [rate / other for rate, other in zip(rates, others, strict=False)]


def digits(value: float) -> str:
    """Formats a number with two decimals, or two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def middle(values: list[float]) -> float:
    return statistics.median(values) if values else float("nan")
