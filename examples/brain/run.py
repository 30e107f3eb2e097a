"""The whole example: runs generators, a manager and reader ranks, then makes a summary and a picture.

Every run starts with an empty ring in work/, and leaves the ring, the logs and
the reports of the processes there.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import ringreel

import picture
import processes
import report
import template

HERE = Path(__file__).resolve().parent
WORK = HERE / "work"
CONFIG = "config.yaml"  # Relative, like the ring's folder in it: all processes run in HERE.


def start_all(args):
    """Start every process; return (generators, manager, trainers)."""
    common = ["-c", CONFIG]

    def start(name, script, *more):
        return processes.Process(name, [script, *common, *more], HERE, WORK / "logs" / f"{name}.log")

    manager = start("manager", "manager.py")
    generators = [
        start(f"generator-{i}", "generator.py", "--worker", i, "--seed", args.seed,
              "--report", WORK / "reports" / f"generator-{i}.json")
        for i in range(args.generators)
    ]
    trainers = [
        start(f"trainer-{i}", "trainer.py", "--rank", i, "--world-size", args.readers, "--step", args.step,
              "--report", WORK / "reports" / f"trainer-{i}.json")
        for i in range(args.readers)
    ]
    return generators, manager, trainers


def watch(args, everyone):
    """Show progress until the goal is reached; return a process that ended too early, or None."""
    ring, drawn = None, False
    start = time.monotonic()
    terminal = sys.stderr.isatty()
    shown = 0.0
    while (elapsed := time.monotonic() - start) < args.seconds:
        for process in everyone:
            if not process.running():
                return process
        ring = ring or open_ring()
        numbers = report.ring_numbers(ring.status()) if ring else {"delivered": 0, "swaps": 0}
        if args.samples and numbers["delivered"] >= args.samples:
            break
        if numbers["swaps"] and not drawn:
            drawn = True
            draw(args.picture, f"the first generation, after {elapsed:.0f} s")
            print(f"\nthe first generation is readable: {args.picture}", file=sys.stderr, flush=True)
        if terminal or elapsed - shown >= 5:
            shown = elapsed
            line = f"{elapsed:5.1f} s  {numbers['delivered']:5d} samples delivered  {numbers['swaps']:3d} swaps"
            print(f"\r{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)
        time.sleep(0.5)
    if terminal:
        print(file=sys.stderr)
    return None


def open_ring():
    """The ring, or None if it does not exist yet."""
    ring = ringreel.Ring(CONFIG)
    try:
        ring.status()
    except ringreel.RingNotFoundError:
        return None
    return ring


def draw(path, subtitle, count=6, candidates=60):
    """Write the contact sheet of samples read back from the ring's newest generation."""
    dataset = ringreel.Ring(CONFIG).dataset()
    step = max(1, len(dataset) // candidates)
    indices = range(0, len(dataset), step)
    chosen = picture.choose_different([dataset[i].meta for i in indices], count)
    cards = []
    for i in chosen:
        sample = dataset[indices[i]]
        heading = f"generation {sample.generation} · position {sample.position}"
        cards.append((sample["image"], sample["label"], heading, describe(sample.meta)))
    picture.contact_sheet(cards, "Synthetic brains, read back from the ring", subtitle).save(path)


def describe(meta):
    """The random parameters of a sample in one line."""
    if meta["spacing_mm"] > meta["voxel_mm"]:
        plane = ("sagittal", "coronal", "axial")[meta["slice_axis"]]
        slices = f"{plane} slices {meta['spacing_mm']:.1f} mm apart"
    else:
        slices = f"{meta['voxel_mm']} mm voxels"
    seed = "-".join(map(str, meta["seed"]))
    return f"seed {seed} · {slices} · noise {100 * meta['noise_std']:.1f} % · gamma {meta['gamma']:.2f}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--generators", type=int, default=2, help="generator processes (default: 2)")
    parser.add_argument("--readers", type=int, default=2, help="reader ranks (default: 2)")
    parser.add_argument("--seconds", type=float, default=60, help="end after this time (default: 60)")
    parser.add_argument("--samples", type=int, default=0, help="end after this number of delivered samples")
    parser.add_argument("--step", type=float, default=0.08, help="seconds of one training step (default: 0.08)")
    parser.add_argument("--seed", type=int, default=2023, help="seed of all samples (default: 2023)")
    parser.add_argument("--picture", type=Path, default=HERE / "samples.png")
    args = parser.parse_args()
    args.picture = args.picture.resolve()

    template.load_label_map()  # Made here, so that generators do not make it concurrently.
    shutil.rmtree(WORK, ignore_errors=True)
    for name in ("logs", "reports"):
        (WORK / name).mkdir(parents=True)
    os.chdir(HERE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    generators, manager, trainers = start_all(args)
    everyone = [*generators, manager, *trainers]
    early = None
    try:
        early = watch(args, everyone)
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Stopping takes a moment; a second Ctrl-C must not interrupt it.
        # The generators first, so that the manager can still commit their last samples.
        bad = processes.stop(generators) + processes.stop(trainers) + processes.stop([manager])
    if early or bad:
        for process in [early] if early else bad:
            print(process.ending(), file=sys.stderr)
        return 1

    result = report.summarise(
        report.read_reports(WORK / "reports", "generator"),
        report.read_reports(WORK / "reports", "trainer"),
        ringreel.Ring(CONFIG).status(),
    )
    (WORK / "summary.json").write_text(json.dumps(result, indent=1))
    print(report.as_text(result))
    if not result["swaps"]:
        print("no generation was filled, so there is no picture; run it longer", file=sys.stderr)
        return 1
    draw(
        args.picture,
        f"{result['made']} samples made by {report.counted(result['generators'], 'generator')}, "
        f"{report.counted(result['swaps'], 'generation')}, {result['lost']} lost",
    )
    print(f"\npicture    {args.picture}")
    return 1 if result["lost"] else 0


if __name__ == "__main__":
    sys.exit(main())
