"""Train with DistributedDataParallel; save checkpoints, and resume with exactly the next sample.

    torchrun --nproc-per-node 2 train.py -c config.yaml --checkpoint run.pt --steps 1000
    srun python train.py ...                     (in examples/slurm/train-pytorch.sbatch)

SIGTERM and SIGUSR1 (SLURM's warnings before preemption and the time limit) save a checkpoint and end the program with
exit status 75, which makes the batch script requeue itself. Started again, the program resumes.
"""

import argparse
import itertools
import os
import signal
import sys

import ringreel.torch
import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel

REQUEUE = 75  # EX_TEMPFAIL of sysexits.h


def init_ranks() -> tuple[int, int, torch.device]:
    """Join the process group; torchrun sets the variables that it needs, for srun they follow from SLURM's."""
    for name, slurm in (("RANK", "SLURM_PROCID"), ("WORLD_SIZE", "SLURM_NTASKS"), ("LOCAL_RANK", "SLURM_LOCALID")):
        os.environ.setdefault(name, os.environ.get(slurm, "1" if name == "WORLD_SIZE" else "0"))
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29400")
    cuda = torch.cuda.is_available()
    torch.distributed.init_process_group("nccl" if cuda else "gloo")
    if cuda:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    device = torch.device("cuda" if cuda else "cpu")
    return torch.distributed.get_rank(), torch.distributed.get_world_size(), device


class StopRequest:
    """Whether a signal has asked any rank to stop."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: object) -> None:
        self.requested = True

    def agreed(self, device: torch.device) -> bool:
        """Return the same answer on all ranks, since all must leave the loop at the same step."""
        flag = torch.tensor(float(self.requested), device=device)
        torch.distributed.all_reduce(flag, torch.distributed.ReduceOp.MAX)
        return bool(flag)


def save(path: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer, iterator, step: int) -> None:
    """Write a checkpoint: rank 0 writes the weights, and where each rank is in its stream."""
    states = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(states, iterator.state_dict())
    if torch.distributed.get_rank() == 0:
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "streams": states}
        torch.save(checkpoint, path + ".new")
        os.replace(path + ".new", path)
    torch.distributed.barrier()


def make_model(classes: int) -> torch.nn.Module:
    """Return a small network that finds the label of each voxel; put your own here."""
    return torch.nn.Sequential(
        torch.nn.Conv3d(1, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv3d(8, classes, 3, padding=1)
    )


def main() -> int:
    """Train for a number of steps, over all starts of this program together."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-c", "--config", default="config.yaml", help="configuration of the ring")
    parser.add_argument("--checkpoint", default="checkpoint.pt", help="file to save to, and to resume from")
    parser.add_argument("--run", default="train", help="name of the run: the same after a restart")
    parser.add_argument("--steps", type=int, default=100, help="steps in all (default: 100)")
    parser.add_argument("--batch-size", type=int, default=4, help="samples per rank and step (default: 4)")
    parser.add_argument("--save-every", type=int, default=50, help="steps between checkpoints (default: 50)")
    parser.add_argument("--image", default="image", help="name of the part with the image (default: image)")
    parser.add_argument("--label", default="label", help="name of the part with the labels (default: label)")
    parser.add_argument("--classes", type=int, default=5, help="number of labels, which begin at 0 (default: 5)")
    parser.add_argument("--seen", help="append the id of every sample to this file, with the rank as suffix")
    args = parser.parse_args()

    rank, world_size, device = init_ranks()
    stop = StopRequest()
    model = DistributedDataParallel(make_model(args.classes).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    ring = ringreel.Ring(args.config)
    # All ranks read the same generations (`run`), and take the same number of steps in each (`equal`).
    stream = ring.stream(rank, world_size, shuffle=True, seed=0, equal="drop", run=args.run)
    step = 0
    if os.path.exists(args.checkpoint):
        checkpoint = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        stream.load_state_dict(checkpoint["streams"])
        step = checkpoint["step"]

    while step < args.steps:
        samples = list(itertools.islice(stream, args.batch_size))
        tensors = [sample.torch(args.image, args.label) for sample in samples]
        image = torch.stack([tensor[args.image] for tensor in tensors]).to(device).float().unsqueeze(1)
        label = torch.stack([tensor[args.label] for tensor in tensors]).to(device).long()
        loss = torch.nn.functional.cross_entropy(model(image), label.clamp(0, args.classes - 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if args.seen:
            with open(f"{args.seen}.{rank}", "a") as file:
                file.writelines(f"{step} {sample.sample_id}\n" for sample in samples)
        stopping = stop.agreed(device)
        if stopping or step % args.save_every == 0 or step == args.steps:
            save(args.checkpoint, model, optimizer, stream, step)
        if rank == 0 and (step % 10 == 0 or stopping):
            print(f"step {step} loss {loss.item():.4f} generation {samples[-1].generation}", flush=True)
        if stopping:
            # Unlike `close`, this makes the ring keep the stream's generations for RUN_GRACE, for the next start.
            stream.suspend()
            return REQUEUE
    return 0


if __name__ == "__main__":
    sys.exit(main())
