"""The process that examines cases: cases on its standard input, outcomes on its standard output, a line each."""

from __future__ import annotations

import json
import os
import sys

from torch_neuronx.operator_table.case import Case


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what operators print must not mix with the answers
    import torch

    from torch_neuronx.operator_table.examine import examine
    from torch_neuronx.operator_table.samples import database

    torch.set_num_threads(1)
    torch.neuron.init()
    database()
    answers.write("ready\n")
    for line in sys.stdin:
        asked = json.loads(line)
        outcome = examine(Case(**asked["case"]), asked["samples"])
        answers.write(json.dumps(outcome.to_json()) + "\n")


if __name__ == "__main__":
    main()
