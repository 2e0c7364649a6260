"""Environment variables that change what Neuron programs do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts

_MATTER = re.compile(
    r"(NEURON|TORCH_NEURONX|TORCHINDUCTOR|TORCH_DEVICE_BACKEND|TORCH_LOGS|NKI|NRT|XLA|PJRT|HF|HUGGINGFACE|ACCELERATE"
    r"|ON_NEURON|COLLECTIVE|FI|AWS_NEURON|VLLM)(_|$)|(MASTER_ADDR|MASTER_PORT|RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|XDG_CACHE_HOME|XDG_RUNTIME_DIR|OMP_NUM_THREADS"
    r"|AWS_REGION|AWS_DEFAULT_REGION|AWS_ENDPOINT_URL\w*|JAX_PLATFORMS)$"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|(API|ACCESS|PRIVATE)_?KEY|_AUTH$", re.I)
HIDDEN = "(set; not shown)"


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds what nobody may see. A file's name is no secret."""
    return bool(_SECRET.search(name)) and not name.endswith(("_FILE", "_PATH", "_DIR"))


def shown_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Those that matter, in order; a secret's value is never among them."""
    return {
        name: HIDDEN if is_secret(name) else value for name, value in sorted(environ.items()) if _MATTER.match(name)
    }


def probe_variables(host: Host) -> Facts:
    facts = Facts()
    for name, value in shown_variables(host.environ).items():
        facts.put(name, value)
    return facts
