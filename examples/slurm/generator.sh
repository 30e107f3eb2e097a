#!/bin/bash
# The n-th generator process of a job of generators.sbatch. Replace the last line by your own program, which must end at
# SIGTERM, as ringreel.run_generator does.
worker=$((SLURM_ARRAY_TASK_ID * SLURM_CPUS_PER_TASK + $1))
# The seed differs for requeued jobs and for other jobs, so that no samples repeat.
seed=$((worker + 1000 * ${SLURM_RESTART_COUNT:-0} + 1000000 * SLURM_ARRAY_JOB_ID))

read -ra options <<<"${OPTIONS:---shape 64,64,64}"
# If LEDGERS names a directory, each process writes the ids of its finished samples there.
[ -z "${LEDGERS:-}" ] || options+=(--ledger "$LEDGERS/$SLURM_ARRAY_JOB_ID.$worker.ledger")

exec ringreel generate -c "${CONFIG:-config.yaml}" --seed "$seed" "${options[@]}"
