"""Sources as tests write them, and what preflight says of them."""

from __future__ import annotations

import textwrap

from neuron_runtime.preflight.examine import examine
from neuron_runtime.preflight.finding import Finding
from neuron_runtime.preflight.mending import mended

HEAD = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n"


def findings(text: str, head: str = HEAD) -> list[Finding]:
    return list(examine("script.py", (head + textwrap.dedent(text)).encode()).findings)


def rules(text: str, head: str = HEAD) -> list[str]:
    """The ids of what was found, notes left out."""
    return [it.rule.id for it in findings(text, head) if it.level.value != "note"]


def mend(text: str, head: str = HEAD) -> str:
    """The mended text, without the head."""
    whole = head + textwrap.dedent(text)
    return (mended(examine("script.py", whole.encode())) or whole).removeprefix(head)
