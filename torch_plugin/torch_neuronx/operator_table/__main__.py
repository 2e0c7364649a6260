"""`python -m torch_neuronx.operator_table`: examine PyTorch's operators on the device, and write the table."""

from __future__ import annotations

import fnmatch
import shlex
import sys
from collections import Counter
from pathlib import Path

import click

from torch_neuronx.operator_table.case import DTYPES, Outcome
from torch_neuronx.operator_table.document import document
from torch_neuronx.operator_table.samples import cases, database
from torch_neuronx.operator_table.survey import Book, Options, survey


@click.command()
@click.option("--ops", default="*", show_default=True, help="Names in the database, with wildcards, commas between.")
@click.option("--dtypes", default=",".join(DTYPES), show_default=True)
@click.option("--backward/--no-backward", default=True, show_default=True)
@click.option("--samples", default=3, show_default=True, help="Samples of each operator, spread over those it has.")
@click.option("--seconds", default=60.0, show_default=True, help="What one case may take.")
@click.option("--workers", default=2, show_default=True, help="Processes; each takes a core of the device.")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("operators.jsonl"),
    show_default=True,
    help="Outcomes, a line each. What it holds already is not run again.",
)
@click.option("--again", default="", help="Verdicts to run again although the results hold them, commas between.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), help="Where the table goes.")
def main(
    ops: str,
    dtypes: str,
    backward: bool,
    samples: int,
    seconds: float,
    workers: int,
    results: Path,
    again: str,
    markdown: Path | None,
) -> None:
    """Run PyTorch's operator samples (torch.testing's op_db) on the device and compare with the CPU."""
    patterns = ops.split(",")
    names = [name for name in database() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    if not names:
        raise click.UsageError(f"no operator of the database is called {ops}; wildcards are allowed, as in 'linalg.*'")
    unknown = set(dtypes.split(",")) - set(DTYPES)
    if unknown:
        raise click.UsageError(f"{', '.join(sorted(unknown))}: choose from {', '.join(DTYPES)}")
    wanted = cases(names, dtypes.split(","), backward=backward)
    book = Book(results)
    for key in [key for key, outcome in book.known.items() if outcome.verdict in again.split(",")]:
        del book.known[key]
    done = Counter[str]()

    def tell(outcome: Outcome) -> None:
        done[outcome.verdict] += 1
        what = " ".join((outcome.detail or ", ".join(outcome.fallbacks)).split())
        click.echo(f"{sum(done.values())} {outcome.case.key}: {outcome.verdict} {what[:160]}".rstrip())

    survey(wanted, Options(samples, seconds, workers), book, tell)
    keys = {case.key for case in wanted}
    found = sorted((o for key, o in book.known.items() if key in keys), key=lambda outcome: outcome.case)
    counted = Counter(outcome.verdict for outcome in found)
    click.echo(", ".join(f"{count} {verdict}" for verdict, count in sorted(counted.items())))
    if markdown is not None:
        command = "python -m torch_neuronx.operator_table " + shlex.join(sys.argv[1:])
        markdown.write_text(document(found, command.strip(), samples, len(keys) - len(found)))


if __name__ == "__main__":
    main()
