"""Reports wrong answers to calls whose reply was lost while the server restarted."""

import time
from pathlib import Path

from lab import until

SCRIPT = (Path(__file__).parent / "guest" / "lost.py").read_text()
SECONDS = 60


def run(lab):
    """Returns one line per node."""
    directory, roles = lab.part("lost"), []
    for node in lab.nodes:
        script = "import sys; exec(sys.argv.pop(1))"
        command = ["python3", "-c", script, SCRIPT, lab.shared, SECONDS]
        out, err = directory / f"{node.name}.out", directory / f"{node.name}.err"
        roles.append(node.spawn("lost", *command, stdout=out, stderr=err))
    for name in ("nfsd stopped", "server without power"):
        time.sleep(8)
        fault = lab.fault(name, 2)
        fault.act()
        time.sleep(fault.seconds)
        fault.undo()
    seconds = SECONDS + 4 * lab.grace + 120
    until(
        "the end on both nodes",
        lambda: all(role.ended() is not None for role in roles),
        seconds,
        1.0,
    )
    lab.sync()
    return [
        f"{node.name}: {(directory / f'{node.name}.out').read_text().strip()}" for node in lab.nodes
    ]
