#!/bin/bash
# TaskProlog= of slurm.conf: Slurm puts each line `export NAME=value` that this prints into the task's environment.
# shellcheck source=fleet.env
. "${NEURON_FLEET_FILE:-/etc/neuron-env/fleet.env}" || exit 0
for name in NEURON_ENV_CACHE_URL NEURON_ENV_CACHE_NAMESPACE NEURON_ENV_CACHE_LOCAL_DIR TORCH_NEURONX_NEFF_CACHE_DIR; do
  echo "export $name=${!name}"
done
echo "export NEURON_ENV_JOB=${NEURON_ENV_JOB:-$SLURM_JOB_NAME}"
launcher=${NEURON_ENV_BIN%/bin/*}/libexec/neuron-env
echo "export PATH=$launcher:$PATH"
