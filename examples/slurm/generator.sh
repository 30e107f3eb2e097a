#!/bin/bash
# One generator process of generators.sbatch, the n-th of its job. Put your own program in the place of the last line; it is
# to end at SIGTERM, as ringreel.run_generator does.
worker=$((SLURM_ARRAY_TASK_ID * SLURM_CPUS_PER_TASK + $1))
# Neither a job that was queued again nor another one is to make the same samples again.
seed=$((worker + 1000 * ${SLURM_RESTART_COUNT:-0} + 1000000 * SLURM_ARRAY_JOB_ID))

read -ra options <<<"${OPTIONS:---shape 64,64,64}"
# Where LEDGERS names a directory, each process writes down there what it finished.
[ -z "${LEDGERS:-}" ] || options+=(--ledger "$LEDGERS/$SLURM_ARRAY_JOB_ID.$worker.ledger")

exec ringreel generate -c "${CONFIG:-config.yaml}" --seed "$seed" "${options[@]}"
