"""Judges a run: compares finished samples, manifests, and what readers saw.

A ledger is the file of `ringreel generate --ledger`: a line for each finished sample, with its id.
The judge reads manifests from the server's disk with an independent parser, so it trusts no
client's view and no code under test.
"""

import collections
import json
from dataclasses import dataclass, field


def ledger_ids(ledgers):
    """The ids in these files. The last line of a killed process may be unfinished."""
    ids = set()
    for path in ledgers:
        ids.update(
            line[:-1] for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")
        )
    return ids


class Manifests:
    """The manifests of a ring, each read once, because they never change."""

    def __init__(self, lab, ring):
        self.lab, self.ring = lab, ring
        self.read = {}

    def look(self):
        """{sample id: [generations that list it]}."""
        for path in self.lab.manifests(self.ring).iterdir():
            if path.name.isdigit() and int(path.name) not in self.read:
                lines = [json.loads(line) for line in path.read_text().splitlines()]
                self.read[int(path.name)] = lines[1:-1]
        listed = collections.defaultdict(list)
        for generation, segments in self.read.items():
            for segment in segments:
                for ordinal in range(segment["samples"]):
                    listed[f"{segment['id']}.{ordinal}"].append(generation)
        return listed


@dataclass
class Verdict:
    """The result of a run."""

    finished: int = 0
    listed: int = 0
    generations: int = 0
    lost: list = field(default_factory=list)
    twice: list = field(default_factory=list)
    seen: int = 0
    distinct: int = 0
    torn: list = field(default_factory=list)
    left_out: list = field(default_factory=list)

    def good(self):
        """Returns whether all guarantees were kept."""
        broken = self.lost or self.twice or self.torn or self.left_out
        return not broken and self.finished > 0


def judge(ledgers, manifests, seen, drained=True):
    """Returns the verdict. `seen` are files of `ringreel read --json`.

    If the ring was not drained, unlisted samples do not count as lost.
    """
    wanted, listed = ledger_ids(ledgers), manifests.look()
    verdict = Verdict(
        finished=len(wanted),
        listed=len(listed),
        generations=max(manifests.read),
        lost=sorted(wanted - listed.keys()) if drained else [],
        twice=sorted(sample for sample, generations in listed.items() if len(generations) > 1),
    )
    distinct = set()
    for path in seen:
        for line in path.read_text().splitlines(keepends=True):
            if not line.endswith("\n"):
                continue  # its reader was killed
            read = json.loads(line)
            verdict.seen += 1
            distinct.add(read.get("sample_id"))
            if not is_whole(read, listed):
                verdict.torn.append(line.strip())
    verdict.distinct = len(distinct)
    return verdict


def is_whole(read, listed):
    """Whether a sample is listed where its reader found it, and has the generator's contents."""
    if "error" in read or listed.get(read["sample_id"]) != [read["generation"]]:
        return False
    given = read["meta"]["crc32"]
    return {name: part.get("crc32") for name, part in read["parts"].items()} == given
