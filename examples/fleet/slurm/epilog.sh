#!/bin/bash
# Epilog= of slurm.conf: what the job compiled, from the node's directory into the fleet's cache. Never fails, like the prolog.
set -a
# shellcheck source=fleet.env
. "${NEURON_FLEET_FILE:-/etc/neuron-env/fleet.env}" || exit 0
set +a
timeout 600 runuser -u "$SLURM_JOB_USER" -- \
  "$NEURON_ENV_BIN" cache sync "$TORCH_NEURONX_NEFF_CACHE_DIR" --upload --release "$NEURON_RELEASE" ||
  logger -t neuron-env "job $SLURM_JOB_ID: NEFFs were not uploaded, status $?"
exit 0
