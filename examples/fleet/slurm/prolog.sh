#!/bin/bash
# Prolog= of slurm.conf: what the fleet has, into the node's directory before the job.
# Slurm drains a node whose prolog fails, so this one never does: a cold cache costs compiles, no node.
set -a
# shellcheck source=fleet.env
. "${NEURON_FLEET_FILE:-/etc/neuron-env/fleet.env}" || exit 0
set +a
install -d -m 2775 -o "$SLURM_JOB_USER" "$TORCH_NEURONX_NEFF_CACHE_DIR" "$NEURON_ENV_CACHE_LOCAL_DIR" || exit 0
timeout 300 runuser -u "$SLURM_JOB_USER" -- \
  "$NEURON_ENV_BIN" cache sync "$TORCH_NEURONX_NEFF_CACHE_DIR" --fill --release "$NEURON_RELEASE" ||
  logger -t neuron-env "job $SLURM_JOB_ID: the NEFF cache was not filled, status $?"
exit 0
