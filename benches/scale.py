"""Writes the tables of docs/internals/scale.md from the figures of benches/system.py.

    python3 benches/scale.py JSON PAGE

Replaces the text between `<!-- begin NAME -->` and `<!-- end NAME -->`. A part without figures keeps its text."""

import json
import math
import pathlib
import re
import sys

MIB, GIB = 1 << 20, 1 << 30
MANIFEST_LINE = 160  # bytes per segment, as `many` measured
CHANGES = ["create", "link", "rename", "unlink", "mkdir"]
QUERIES = ["lookup", "open", "list", "statfs", "read", "write", "sync"]


def table(head, rows):
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join(lines + [f"| {' | '.join(map(str, row))} |" for row in rows])


def short(value):
    """Formats a number with about three digits."""
    if value is None:
        return "not run"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:.{min(3, digits)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def size(value):
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if value >= unit:
            return f"{short(value / unit)} {name}"
    return f"{short(value)} bytes"


def run_of(about):
    small = " SMALL: a functional test, not to be cited." if about["small"] or about["profile"] != "release" else ""
    return (
        f"Run of {about['when']}, {about['seconds']:.0f} s, {about['cores']} cores, Linux {about['kernel']}, rings in "
        f"`{about['dir']}`, load average at the end {about['load_after']}.{small}"
    )


def flow(figures):
    rows = [
        [
            one["shape"],
            one["mode"],
            one["generators"],
            one["readers"],
            short(one["generated_per_second"]),
            short(one["consumed_per_second"]),
            f"{short(one['consumed_per_second'] * one['bytes'] / GIB)} GiB",
            short(one["plain_per_second"]),
            f"**{one['ratio']:.2f}**",
            short(one["plain_processes_per_second"]),
            f"**{one['ratio_processes']:.2f}**",
        ]
        for one in figures
    ]
    return table(
        [
            "sample",
            "mode",
            "generators",
            "readers",
            "generated/s",
            "consumed/s",
            "bytes/s",
            "plain files/s, one process",
            "ratio",
            "plain files/s, one process per generator",
            "ratio",
        ],
        rows,
    )


def memory(figures):
    rows = []
    for one in figures:
        if one["mode"] != "every sample is read" or (one["generators"], one["readers"]) != (2, 1):
            continue
        made, read, managed = (one["processes"][who] for who in ("generator", "reader", "manager"))
        beyond = made["beyond_bytes"]
        rows += [
            [
                one["shape"],
                "generator",
                size(made["peak_bytes"]),
                f"{beyond / one['bytes']:.2f} samples ({size(beyond)}) beyond the caller's data",
                f"{short(made['cpu_seconds'] / made['samples'] * 1e3)} ms per sample",
            ],
            [
                one["shape"],
                "reader",
                size(read["peak_bytes"]),
                f"{size(read['most_anonymous_bytes'])} private, the rest is mapped files",
                f"{short(read['cpu_seconds'] / read['samples'] * 1e3)} ms per sample",
            ],
            [
                one["shape"],
                "manager",
                size(managed["peak_bytes"]),
                f"{size(managed['anonymous_bytes'])} private",
                f"{short(managed['cpu_seconds'] / one['samples'] * 1e3)} ms per sample",
            ],
        ]
    return table(["sample", "process", "peak (VmHWM)", "of which", "CPU"], rows)


def latency(figures):
    def spread_of(spread):
        return f"{short(spread['median'])} / {short(spread['p95'])} / {short(spread['max'])}"

    rows = [
        [
            one["swap_cap"],
            one["rate"],
            one["samples"],
            one["read"],
            spread_of(one["last_ms"]),
            spread_of(one["any_ms"]),
            short(one["filling_ms"]),
        ]
        for one in figures
    ]
    return table(
        [
            "SWAP_CAP",
            "samples/s",
            "samples",
            "samples read",
            "last sample of a generation, ms (median / 95 % / max)",
            "any sample, ms",
            "time to fill a generation, ms",
        ],
        rows,
    )


def counted(figures, key):
    kinds = ["walk", *QUERIES[:4], *CHANGES, *QUERIES[4:]]
    rows = [[one["who"], one["segment_samples"], *(short(one[key].get(kind, 0)) for kind in kinds)] for one in figures]
    return table(["role", "SEGMENT_SAMPLES", *kinds], rows)


def calls(figures):
    return (
        f"Per sample:\n\n{counted(figures, 'each_sample')}\n\nPer generation:\n\n{counted(figures, 'each_generation')}"
    )


def groups(figures):
    kinds = ["walk", *QUERIES[:4], *CHANGES, *QUERIES[4:]]
    rows = [
        [
            one["segment_samples"],
            short(one["samples_per_second"]),
            *(short(one["each_sample"].get(kind, 0)) for kind in kinds),
            short(one["all"]),
            short(one["without_walks"]),
        ]
        for one in figures
    ]
    return table(["SEGMENT_SAMPLES", "samples/s", *kinds, "all", "all except walks"], rows)


def index(figures):
    one = figures[0]

    def words(each):
        return ", ".join(f"{name} {short(n)}" for name, n in each.items()) or "none"

    return table(
        ["", "commands"],
        [
            ["per sample (SWAP_CAP 20 to 200)", words(one["each_sample"])],
            ["per generation", words(one["each_generation"])],
            [
                f"per second, a manager and a generator, LEASE_SECONDS {one['lease_seconds']}",
                short(one["manager_and_generator_per_second"]),
            ],
        ],
    )


def idle(figures):
    rows = [
        [
            one["who"],
            f"{one['cpu_percent']:.2f} %",
            short(one["calls_per_second"]),
            short(one["ring_operations_per_second"]),
            ", ".join(f"{k} {short(n)}" for k, n in one["by_kind"].items()),
        ]
        for one in figures
    ]
    return table(["process", "CPU", "system calls/s", "operations on the ring/s", "of which"], rows)


def stall(figures):
    rows = [
        [
            f"{one['swap_cap']:,}",
            one["segment_samples"],
            f"{one['swap_cap'] // one['segment_samples']:,}",
            one["swaps"],
            short(one["stall_ms"].get("median")),
            short(one["stall_ms"].get("max")),
            short(one["waited_ms"]),
            short(one["other_calls_ms"]),
        ]
        for one in figures
    ]
    return table(
        [
            "SWAP_CAP",
            "SEGMENT_SAMPLES",
            "files",
            "swaps",
            "stall, ms (median)",
            "max",
            "of which waiting, ms (mean)",
            "other calls, ms",
        ],
        rows,
    )


def first(figures):
    rows = [
        [
            f"{one['samples']:,}",
            one["segments"],
            short(one["open_ms"]),
            short(one["newest_ms"]),
            short(one["first_ms"]),
            short(one["again_ms"]),
            short(one["python_ms"]),
        ]
        for one in figures
    ]
    return table(
        [
            "samples",
            "files",
            "open, ms",
            "newest generation, ms",
            "first sample, ms",
            "repeated in the same process, ms",
            "Python, ms",
        ],
        rows,
    )


def many(figures):
    rows = [
        [
            one["generators"],
            one["segment_samples"],
            f"{one['swap_cap']:,}",
            f"{one['samples']:,}",
            short(one["per_second"]),
            short(one["longest_seconds"] * 1e3),
            short(one["names_per_sample"]),
            short(names_per_sample(one["generators"], one["swap_cap"], one["segment_samples"])),
            short(one["cpu_seconds"] / one["samples"] * 1e3),
            size(one["manager_peak_bytes"]),
        ]
        for one in figures
    ]
    return table(
        [
            "generators",
            "SEGMENT_SAMPLES",
            "SWAP_CAP",
            "samples",
            "samples/s",
            "longest call, ms",
            "names listed per sample",
            "estimated",
            "CPU, ms per sample",
            "manager's peak",
        ],
        rows,
    )


def names_per_sample(generators, cap, segment, others=1):
    """Estimates the names that generators list per sample. A generator lists the filling generation when it has
    committed an eighth of its share (among all members) of the room that it saw at the last listing. Meanwhile the
    others commit as much. Near the end of a generation it lists after each file."""
    files = room = cap / segment
    names = 0.0
    while room >= 1:
        step = min(room, generators * max(1.0, room / (8 * (generators + others))))
        names += generators * (files - room + step / 2)
        room -= step
    return names / cap


def estimate(parts, generators, readers, rate, cap, segment, poll, lease, passes=1.0):
    """Estimates operations per second of all roles together, from the figures of one process each."""
    by = {(one["who"], one["segment_samples"]): one for one in parts["calls"]["figures"]}
    samples = generators * rate
    swaps = samples / cap

    def cost(who, kinds):
        one, ten = (sum(by[who, n]["each_sample"].get(kind, 0) for kind in kinds) for n in (1, 10))
        file = (one - ten) / 0.9
        generation = sum(by[who, 1]["each_generation"].get(kind, 0) for kind in kinds)
        return max(0.0, one - file) + file / segment, max(0.0, generation)

    def total(kinds):
        made, managed, read = (cost(who, kinds) for who in ("generator", "manager", "reader"))
        return samples * (made[0] + managed[0] + passes * read[0]) + swaps * (
            generators * made[1] + managed[1] + readers * read[1]
        )

    # In the measured generations (SWAP_CAP 20 and 100) each number was claimed separately: one name created, one
    # looked up.
    block = min(64, max(1, cap // 64))
    spared = samples / segment * (1 - 1 / block)
    beats = (generators + readers) * 4 / lease
    polls = readers / poll
    names = samples * names_per_sample(generators, cap, segment, readers + 1)
    return {
        "samples": samples,
        "swaps": swaps,
        "changes": total(CHANGES) - spared + beats * 3,
        "queries": total(["lookup", "open", "list", "statfs"]) - spared + polls,
        "walks": total(["walk"]) - spared * 4 + beats * 8 + polls * 2,
        "names": names,
        "manifest": cap / segment * MANIFEST_LINE,
        "manifests_read": (generators + readers) * swaps * cap / segment * MANIFEST_LINE,
        "members": generators + readers,
    }


def scale(parts):
    rows = []
    many_, readers, rate = 1000, 100, 1.0
    for cap, segment in [(1000, 1), (10_000, 1), (10_000, 10), (100_000, 10), (100_000, 100), (1_000_000, 100)]:
        one = estimate(parts, many_, readers, rate, cap, segment, 1.0, 10.0)
        rows.append(
            [
                f"{cap:,}",
                segment,
                f"{short(1 / one['swaps'])} s",
                short(one["changes"]),
                short(one["queries"]),
                short(one["walks"]),
                short(one["names"]),
                size(one["manifest"]),
                f"{size(one['manifests_read'])}/s",
            ]
        )
    return table(
        [
            "SWAP_CAP",
            "SEGMENT_SAMPLES",
            "swap interval",
            "changes/s",
            "queries/s",
            "walks/s",
            "names listed/s",
            "manifest",
            "manifests read",
        ],
        rows,
    )


def large(figures):
    rows = []
    for one in figures:
        seconds = "" if one["seconds"] is None else f"{one['seconds']:.2f}"
        rows.append([one["ring"], one["role"], size(one["peak_bytes"]), seconds])
    return table(["ring", "process", "peak memory", "seconds"], rows)


def main():
    parts, page = json.loads(pathlib.Path(sys.argv[1]).read_text()), pathlib.Path(sys.argv[2])
    text = page.read_text()
    tables = {name: globals()[name] for name in parts}
    made = {
        name: f"{run_of(parts[name]['about'])}\n\n{make(parts[name]['figures'])}"
        for name, make in tables.items()
        if parts[name]["figures"]
    }
    if "flow" in parts:
        made["memory"] = f"The same run.\n\n{memory(parts['flow']['figures'])}"
    if "calls" in parts:
        made["scale"] = f"Estimated from `calls`. {run_of(parts['calls']['about'])}\n\n{scale(parts)}"
    for name, new in made.items():
        between = re.compile(rf"(<!-- begin {name} -->\n).*?(<!-- end {name} -->)", re.S)
        text, found = between.subn(lambda match, new=new: f"{match[1]}\n{new}\n\n{match[2]}", text)
        assert found == 1, f"{page} has no markers for {name}"
    page.write_text(text)


if __name__ == "__main__":
    main()
