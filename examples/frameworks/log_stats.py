"""Logs what a stream says about itself to TensorBoard, Weights & Biases or MLflow.

python log_stats.py --to tensorboard --steps 100
"""

import argparse
import dataclasses

import ringreel


def ring_metrics(stream, sample):
    """Returns the times and counts of `stream.stats()` that are known so far, and the generation of the last sample."""
    stats = dataclasses.asdict(stream.stats())
    known = {f"ring/{name}": value for name, value in stats.items() if value is not None}
    return {**known, "ring/generation": sample.generation}


def tensorboard_log():
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter("runs")

    def log(metrics, step):
        for name, value in metrics.items():
            writer.add_scalar(name, value, step)

    return log, writer.close


def wandb_log():
    import wandb

    run = wandb.init(project="ringreel")  # WANDB_MODE=offline writes to the folder wandb/ only
    return run.log, run.finish


def mlflow_log():
    import mlflow

    mlflow.start_run()
    return mlflow.log_metrics, mlflow.end_run


if __name__ == "__main__":
    loggers = {"tensorboard": tensorboard_log, "wandb": wandb_log, "mlflow": mlflow_log}
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", choices=loggers, default="tensorboard")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    log, close = loggers[args.to]()
    stream = ringreel.Ring("config.yaml").stream(shuffle=True)
    for step, sample in zip(range(1, args.steps + 1), stream):
        # Train on the sample here.
        if step % 10 == 0:
            log(ring_metrics(stream, sample), step=step)
    close()
