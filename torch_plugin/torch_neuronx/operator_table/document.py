"""The outcomes as a Markdown document, equal for equal outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version

from torch_neuronx.operator_table.case import SEVERITY, Case, Outcome, Verdict

_COLUMNS = (
    ("float32", "float32", False),
    ("bfloat16", "bfloat16", False),
    ("int64", "int64", False),
    ("float32 backward", "float32", True),
    ("bfloat16 backward", "bfloat16", True),
)
_WORTH_TELLING = (Verdict.WRONG, Verdict.FAILED, Verdict.CRASHED, Verdict.HUNG)

_HEAD = """# Operators on the device

PyTorch's own samples of its operators (`torch.testing`'s op_db), run on the device and compared with the CPU.
Written by

```console
{command}
```

with torch {torch}, torch-mlir {mlir}, jaxlib {jaxlib}; up to {samples} samples of each operator, dtype and
direction, spread over those it has. A case is one operator with one dtype, forward or backward; of its samples the
worst counts. {missing} cases were not run: they have no word in
the table.

| word | what it says |
| --- | --- |
| compiled | all that ran is a NEFF, and the results agree |
| host | it ran on the host, since a size, or what comes next, depends on values: no static graph exists |
| fell back | an operator with a graph to be had ran on the host; the last column names it |
| wrong, failed, crashed, hung | results differ; an error the CPU does not raise; the process died; no answer |
| - | no sample that the CPU runs and the device can hold (sparse, `channels_last`, wide integers, CUDA only) |

Numbers agree within ten times `torch.testing`'s tolerances, or if the device is at most four times as far from the
result in float64 as the CPU is. Random numbers are compared by shape, dtype and, from 50 of them, mean; unset memory by
shape and dtype; places among equal elements not at all.
{excused} samples were left out since their integers need more than 32 bits: the device has 32.
"""


def document(outcomes: Sequence[Outcome], command: str, samples: int, missing: int) -> str:
    """Head, counts and a row an operator. `missing`: how many cases the command asks for and nobody has run."""
    excused = sum(outcome.excused for outcome in outcomes)
    head = _HEAD.format(
        command=command,
        torch=version("torch"),
        mlir=version("torch-mlir"),
        jaxlib=version("jaxlib"),
        samples=samples,
        excused=excused,
        missing=missing,
    )
    return "\n".join([head, *_counts(outcomes), "", *_rows(outcomes)]) + "\n"


def _counts(outcomes: Sequence[Outcome]) -> list[str]:
    by_case = {outcome.case: outcome for outcome in outcomes}
    words = list(SEVERITY)
    lines = [f"| cases | run | {' | '.join(words)} | compiled |", "| --- |" + " ---: |" * (len(words) + 2)]
    for title, dtype, backward in _COLUMNS:
        lines.append(
            _count(title, (o.verdict for c, o in by_case.items() if (c.dtype, c.backward) == (dtype, backward)))
        )
    for title, backward in (("forward, worst of the dtypes", False), ("everything of an operator", None)):
        lines.append(
            _count(
                title,
                (
                    _worst(o for o in outcomes if o.case.name == name and backward in (None, o.case.backward))
                    for name in dict.fromkeys(outcome.case.name for outcome in outcomes)
                ),
            )
        )
    return lines


def _count(title: str, verdicts: Iterable[Verdict]) -> str:
    counted = Counter(verdicts)
    run = sum(counted[word] for word in SEVERITY)
    share = f"{100 * counted[Verdict.COMPILED] / run:.1f} %" if run else ""
    return f"| {title} | {run} | {' | '.join(str(counted[word]) for word in SEVERITY)} | {share} |"


def _worst(outcomes: Iterable[Outcome]) -> Verdict:
    verdicts = [outcome.verdict for outcome in outcomes if outcome.verdict is not Verdict.SKIPPED]
    return max(verdicts, key=SEVERITY.index, default=Verdict.SKIPPED)


def _rows(outcomes: Sequence[Outcome]) -> list[str]:
    by_case = {outcome.case: outcome for outcome in outcomes}
    lines = [
        f"| operator | {' | '.join(title for title, *_ in _COLUMNS)} | ran on the host, or what was wrong |",
        "| --- |" + " --- |" * (len(_COLUMNS) + 1),
    ]
    for name in sorted({outcome.case.name for outcome in outcomes}):
        found = [by_case.get(Case(name, dtype, backward)) for _, dtype, backward in _COLUMNS]
        words = [("-" if o.verdict is Verdict.SKIPPED else o.verdict.value) if o is not None else "" for o in found]
        lines.append(f"| {name} | {' | '.join(words)} | {_notes([o for o in found if o is not None])} |")
    return lines


def _notes(outcomes: Sequence[Outcome]) -> str:
    fallbacks = sorted({name.removeprefix("aten::") for o in outcomes for name in o.fallbacks})
    notes = [f"`{', '.join(fallbacks)}`"] if fallbacks else []
    for outcome in outcomes:
        if outcome.verdict in _WORTH_TELLING:
            told = " ".join(outcome.detail.split())[:120].replace("|", "/").replace("<", "(").replace(">", ")")
            notes.append(f"{outcome.case.dtype}{' backward' if outcome.case.backward else ''}: {told}")
    return "; ".join(notes)
