"""The one place that prints.

Data goes to stdout, everything else to stderr. A reading command has three modes: text for people (which may change),
one JSON document with `--json` (whose keys may not), and bare identifiers with `--quiet`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import IO, Any, ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")

SCHEMA_VERSION = 1

# What to print where the encoding cannot show the mark.
_ASCII = str.maketrans({"✓": "ok", "✗": "FAIL", "…": "...", "→": "->", "×": "x", "·": "-", "—": "-", "µ": "u"})


class Mode(Enum):
    HUMAN = "human"
    JSON = "json"
    QUIET = "quiet"


class Output:
    """What one run of the command prints, how, and where. Streams are looked up when they are written to."""

    def __init__(self, *, color: str = "auto") -> None:
        self.mode = Mode.HUMAN
        self.color = color
        self.debug = False

    @property
    def human(self) -> bool:
        return self.mode is Mode.HUMAN

    # -- data, on stdout

    def line(self, text: str = "", **style: Any) -> None:
        """One line of data for people. `style` are click's: `bold=True`, `fg="red"`."""
        self._write(sys.stdout, click.style(clean(text), **style) if style else clean(text))

    def table(
        self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, ids: int = 0, boxed: bool = False
    ) -> None:
        """Rows under headings; in quiet mode only the column `ids`. Numbers are set flush right.

        `boxed` draws ASCII lines around the cells, as the vendor's tools do; a heading may then have two lines.
        """
        cells = [[value if isinstance(value, int | float) else clean(str(value)) for value in row] for row in rows]
        if self.mode is Mode.QUIET:
            for row in cells:
                self._write(sys.stdout, str(row[ids]))
            return
        for text in self._table_lines(columns, cells, boxed):
            self._write(sys.stdout, text)

    def record(self, fields: Mapping[str, object]) -> None:
        """Names and values, one pair a line; None is shown as a dash."""
        width = max(map(len, fields), default=0) + 2
        for name, value in fields.items():
            text = clean("-" if value is None else str(value))
            self._write(sys.stdout, click.style(name.ljust(width), dim=True) + text)

    def json_document(self, document: Mapping[str, object], *, schema_version: int = SCHEMA_VERSION) -> None:
        """One object on one line, its `schema_version` first."""
        self.json_text({"schema_version": schema_version, **document})

    def json_text(self, value: object) -> None:
        """JSON in a shape that someone else defined, and that leaves no room for a schema version."""
        import json

        self._write(sys.stdout, json.dumps(value, ensure_ascii=True, separators=(",", ":")))

    def verbatim(self, text: str) -> None:
        """Text for a program, such as a diff for `patch`: not a byte of it may change."""
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
        sys.stdout.buffer.flush()

    def check(self, ok: bool, text: str) -> None:
        """A line for one check, its outcome told by mark as well as by colour."""
        mark = self._encodable("✓" if ok else "✗", sys.stdout)
        self._write(sys.stdout, f"{click.style(mark.ljust(4), fg='green' if ok else 'red')} {clean(text)}")

    # -- everything else, on stderr

    def note(self, text: str) -> None:
        """Progress or a result in passing: for people only."""
        if self.human:
            self._write(sys.stderr, clean(text, keep="\n"))

    def warning(self, text: str, hint: str | None = None) -> None:
        self._labelled("warning", "yellow", text)
        if hint:
            self.hint(hint)

    def error(self, text: str, hint: str | None = None) -> None:
        self._labelled("error", "red", text)
        if hint:
            self.hint(hint)

    def hint(self, text: str) -> None:
        """What to do next, set off by a blank line."""
        self._write(sys.stderr, "")
        self._labelled("hint", "cyan", text)

    def trace(self, text: str) -> None:
        """A traceback or a usage line, as it is."""
        self._write(sys.stderr, text.rstrip("\n"))

    # -- how

    def colored(self, stream: IO[str]) -> bool:
        """Whether colour goes to this stream: by `--color`, then NO_COLOR, FORCE_COLOR, TERM and the terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
            return True
        return os.environ.get("TERM") != "dumb" and stream.isatty()

    def _labelled(self, label: str, color: str, text: str) -> None:
        self._write(sys.stderr, f"{click.style(f'{label}:', fg=color, bold=True)} {clean(text, keep=chr(10))}")

    def _write(self, stream: IO[str], text: str) -> None:
        click.echo(self._encodable(text, stream), file=stream, color=self.colored(stream))

    def _encodable(self, text: str, stream: IO[str]) -> str:
        encoding = getattr(stream, "encoding", None) or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
        return text

    def _table_lines(self, columns: Sequence[str], rows: Sequence[Sequence[object]], boxed: bool) -> list[str]:
        # Rich costs as much to import as the rest of the command together.
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        colored, terminal = self.colored(sys.stdout), sys.stdout.isatty()
        console = Console(
            file=sys.stdout,
            force_terminal=colored,
            no_color=not colored,
            # A pipe has no width: what reads it wants whole cells.
            width=None if terminal else 100_000,
        )
        table = Table(
            box=box.ASCII2 if boxed else None,
            pad_edge=boxed,
            padding=(0, 1, 0, 1) if boxed else (0, 2, 0, 0),
            header_style="bold",
        )
        for at, name in enumerate(columns):
            numbers = bool(rows) and all(isinstance(row[at], int | float) for row in rows)
            table.add_column(
                Text(name, justify="center" if boxed else None), justify="right" if numbers else "left", overflow="fold"
            )
        for row in rows:
            table.add_row(*(Text(str(value)) for value in row))
        with console.capture() as capture:
            console.print(table)
        return [text.rstrip() for text in capture.get().splitlines()]


def output() -> Output:
    """The Output of the command that is running."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Output) if context else None
    if found is None:
        found = Output()
        if context is not None:
            context.find_root().obj = context.obj = found
    return found


def clean(text: str, keep: str = "") -> str:
    """Text that may come from a file or another machine, with what could drive the terminal made visible."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def size_text(size: int) -> str:
    """A number of bytes as people read it: `512 B`, `1.5 KiB`, `96.0 GiB`."""
    if size < 1024:
        return f"{size} B"
    value, units = float(size), iter(("KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))
    unit = "B"
    while value >= 1024 and (following := next(units, None)):
        value, unit = value / 1024, following
    return f"{value:.1f} {unit}"


def json_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `--json`; the command then asks `output().mode`."""
    return _mode_option(Mode.JSON, "--json", help="Print one JSON document.")(command)


def quiet_option(command: Callable[P, R]) -> Callable[P, R]:
    """Give a command `-q` and `--quiet`."""
    return _mode_option(Mode.QUIET, "-q", "--quiet", help="Print identifiers only.")(command)


def _mode_option(mode: Mode, *names: str, help: str) -> Callable[[Callable[P, R]], Callable[P, R]]:  # noqa: A002
    def choose(context: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if not wanted:
            return
        out = output()
        if out.mode not in (Mode.HUMAN, mode):
            raise click.UsageError("`--json` and `--quiet` exclude each other", context)
        out.mode = mode

    def decorate(command: Callable[P, R]) -> Callable[P, R]:
        option = click.option(*names, is_flag=True, expose_value=False, callback=choose, help=help)
        return option(command)

    return decorate
