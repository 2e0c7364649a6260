"""What a program runs inside: a container, an orchestrator, limits."""

from __future__ import annotations

import re

from neuron_runtime.host.host import Host
from neuron_runtime.host.missing import Facts, NotFoundHere

# A variable that the orchestrator sets, and its name.
_ORCHESTRATORS = {
    "KUBERNETES_SERVICE_HOST": "kubernetes",
    "ECS_CONTAINER_METADATA_URI_V4": "ecs",
    "AWS_BATCH_JOB_ID": "aws-batch",
    "SM_TRAINING_ENV": "sagemaker",
    "SLURM_JOB_ID": "slurm",
    "TORCHELASTIC_RUN_ID": "torchrun",
}


def probe_surroundings(host: Host) -> Facts:
    """`container` (None: none was recognised), `orchestrators`, and the cgroup's limits."""
    facts = Facts()
    facts.take("container", lambda: _container(host))
    facts.put("orchestrators", [name for variable, name in _ORCHESTRATORS.items() if host.environ.get(variable)])
    facts.take("memory_limit_bytes", lambda: _memory_limit(host))
    facts.take("processor_limit", lambda: _processor_limit(host))
    return facts


def _container(host: Host) -> str:
    if host.exists("/.dockerenv"):
        return "docker"
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/var/run/secrets/kubernetes.io") or host.environ.get("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    try:
        groups = host.text("/proc/1/cgroup")
    except NotFoundHere as missing:
        raise NotFoundHere(f"no sign of one ({missing.message})") from None
    if found := re.search(r"docker|containerd|crio|libpod|kubepods|lxc|ecs", groups):
        return found[0]
    raise NotFoundHere("no sign of one")


def _memory_limit(host: Host) -> int:
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if host.exists(name):
            text = host.text(name)
            if text.isdecimal() and int(text) < 1 << 60:
                return int(text)
            raise NotFoundHere("no limit")
    raise NotFoundHere("the cgroup's files are not visible")


def _processor_limit(host: Host) -> float:
    quota, _, period = host.text("/sys/fs/cgroup/cpu.max").partition(" ")
    if not quota.isdecimal() or not period.isdecimal():
        raise NotFoundHere("no limit")
    return int(quota) / int(period)
