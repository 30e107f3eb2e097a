"""The rank of this process: from torch.distributed, or from what a launcher (torchrun, srun, mpirun) sets."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import uuid

from ringreel._log import logger

_RANKS = [
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # not SLURM_NTASKS, which is also set in a batch script, a single process
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
]


def rank_and_world() -> tuple[int, int]:
    """Returns the rank of this process and the number of ranks, or (0, 1) if no launcher set them.

    Raises:
        ValueError: A variable is not a number.
    """
    for rank, world in _RANKS:
        found = os.environ.get(rank), os.environ.get(world)
        if found[0] is not None and found[1] is not None:
            try:
                return int(found[0]), int(found[1])
            except ValueError:
                said = f"{rank}={found[0]!r} and {world}={found[1]!r}"
                raise ValueError(f"{said} in the environment are not numbers") from None
    return 0, 1


def run_name(world_size: int, addition: str | None = None) -> str | None:
    """Returns the name of the run of this process's job, or None if the environment names no job.

    The name is ``TORCHELASTIC_RUN_ID`` or ``SLURM_JOB_ID``, with the number of the step and of the
    restart if they are set.

    Args:
        world_size (int): Number of ranks. A single rank need not share the name with another one, so its
            name ends with ``addition``, which makes it unique.
        addition (str | None): The unique part of the name of a single rank. None (the default) draws a
            random one.
    """
    job = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    if job not in ("", "none"):  # torchrun's default
        restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    else:
        job = os.environ.get("SLURM_JOB_ID", "")
        step = os.environ.get("SLURM_STEP_ID", "")
        job = f"{job}.{step}" if job and step else job
        restart = os.environ.get("SLURM_RESTART_COUNT", "0")
    if not job:
        return None
    name = re.sub(r"[^A-Za-z0-9._-]", "-", job).lstrip(".") or "run"
    if name != job or len(name) > 64:  # two jobs never get the same name
        name = f"{name[:55]}-{hashlib.sha256(job.encode(errors='surrogateescape')).hexdigest()[:8]}"
    name += f"-restart{restart}" if restart not in ("", "0") else ""
    return name if world_size > 1 else f"{name}-{addition or uuid.uuid4().hex[:16]}"


def distributed_rank() -> tuple[int, int] | None:
    """Returns rank and world size of ``torch.distributed``, or None if that is not initialized."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def found_rank(given: tuple[int, int] | None) -> tuple[int, int]:
    """Returns rank and world size: those that are given, or of ``torch.distributed``, or of the environment."""
    return given or distributed_rank() or rank_and_world()


def tell_alone(rank: int, world_size: int) -> None:
    """Logs a warning that the ranks of a job may read different generations."""
    logger.warning(
        "this is rank %d of %d, and no run is named: the ranks may read different generations. Pass the same run= to "
        "all of them",
        rank,
        world_size,
    )


def jax_rank() -> tuple[int, int] | None:
    """Returns this process's index and the number of processes of JAX, or None if it has only one, or is not imported.

    JAX starts its devices if it has not yet.
    """
    jax = sys.modules.get("jax")
    if jax is None or not hasattr(jax, "process_count") or jax.process_count() == 1:
        return None
    return jax.process_index(), jax.process_count()
