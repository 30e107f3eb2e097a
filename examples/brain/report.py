"""Combines the reports of a run's processes."""

import collections
import json


def read_reports(folder, kind):
    """The JSON reports `kind`-*.json of a folder, as a list of dicts."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(f"{kind}-*.json"))]


def ring_numbers(status):
    """The numbers of ring.status() that this example uses.

    Returns a dict: swaps, delivered (samples listed by all manifests so far),
    waiting (finished samples that no manifest lists yet) and swap_s (mean
    seconds of a swap, or None if the status does not contain it).
    """
    swap_ms = status["swap_ms_mean"]
    return {
        "swaps": status["swaps"],
        "delivered": status["samples_delivered"],
        "waiting": status["samples_waiting"],
        "swap_s": None if swap_ms is None else swap_ms / 1000,
    }


def summarise(generators, trainers, status):
    """One dict of results.

    Parameters
    ----------
    generators : reports of generator.py.
    trainers : reports of trainer.py.
    status : ring.status() after the generators have ended.

    "lost" is the number of samples that the generators counted as made and
    that the ring neither delivered nor holds for the next generation. "reuse"
    is the number of reads per distinct sample read.
    """
    ring = ring_numbers(status)
    made = sum(report["made"] for report in generators)
    generating_s = max((report["seconds"] for report in generators), default=0.0)
    reads = collections.Counter()
    for report in trainers:
        reads.update(report["reads"])
    total = sum(reads.values())
    return {
        "generators": len(generators),
        "readers": len(trainers),
        "made": made,
        "made_per_s": made / generating_s if generating_s else 0.0,
        "read": total,
        "read_per_s": sum(report["samples_per_s"] for report in trainers),
        "distinct": len(reads),
        "reuse": total / len(reads) if reads else 0.0,
        "first_wait_s": max((report["first_wait_s"] for report in trainers), default=0.0),
        "longest_wait_s": max((report["longest_wait_s"] for report in trainers), default=0.0),
        "swaps": ring["swaps"],
        "swap_s": ring["swap_s"],
        "delivered": ring["delivered"],
        "waiting": ring["waiting"],
        "lost": made - ring["delivered"] - ring["waiting"],
        "labels": trainers[0]["labels"] if trainers else {},
    }


def counted(number, one, many=None):
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"


def as_text(result):
    """The summary as text."""
    r = result
    swap = f", {1000 * r['swap_s']:.1f} ms each" if r["swap_s"] is not None else ""
    generators, readers = counted(r["generators"], "process", "processes"), counted(r["readers"], "rank")
    wait = f"{r['first_wait_s']:.1f} s for the first sample, {1000 * r['longest_wait_s']:.0f} ms at most after it"
    lines = [
        f"generated  {r['made']} samples by {generators}, {r['made_per_s']:.1f} per second",
        f"read       {r['read']} samples by {readers}, {r['read_per_s']:.1f} per second",
        f"reuse      {r['reuse']:.2f} reads per sample ({r['distinct']} distinct samples read)",
        f"waits      {wait}",
        f"swaps      {r['swaps']}{swap}",
        f"ring       {r['delivered']} samples delivered, {r['waiting']} waiting for the next generation",
        f"lost       {r['lost']}",
        "",
        "what rank 0 has seen:",
    ]
    for name, label in r["labels"].items():
        share = f"{100 * label['fraction']:5.1f} % of voxels"
        lines.append(f"  {name:<20} {share}, intensity {label['mean']:5.1f} ± {label['std']:.1f}")
    return "\n".join(lines)
