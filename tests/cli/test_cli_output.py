"""The output sink: one call in each mode, colour by its rules, and text that no terminal can be hurt by."""

from __future__ import annotations

import io
import json
import sys

import pytest

from cli.output import Mode, Output, clean, size_text


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def terminal(encoding: str = "utf-8") -> Terminal:
    return Terminal(io.BytesIO(), encoding=encoding, write_through=True)


def text_of(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode(stream.encoding)


def test_data_goes_to_stdout_and_all_else_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    out.line("data")
    out.record({"name": "block", "missing": None})
    out.warning("careful", hint="look")
    out.error("wrong")
    out.note("passing")
    captured = capsys.readouterr()
    assert captured.out == "data\nname     block\nmissing  -\n"
    assert captured.err == "warning: careful\n\nhint: look\nerror: wrong\npassing\n"


def test_a_table_in_each_mode(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    rows = [("short", 5), ("[red]not markup[/red] :smile:", 1000)]
    out.table(("name", "bytes"), rows)
    assert capsys.readouterr().out == (
        "name                           bytes\n"
        "short                              5\n"
        "[red]not markup[/red] :smile:   1000\n"
    )
    out.mode = Mode.QUIET
    out.table(("name", "bytes"), rows)
    assert capsys.readouterr().out == "short\n[red]not markup[/red] :smile:\n"


def test_a_table_in_a_pipe_is_never_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    Output().table(("path",), [("p" * 300,)])
    assert capsys.readouterr().out.splitlines() == ["path", "p" * 300]


def test_an_empty_table_shows_its_headings(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(("a", "b"), [])
    assert capsys.readouterr().out == "a  b\n"


def test_json_is_one_line_with_its_schema_version_first(capsys: pytest.CaptureFixture[str]) -> None:
    Output().json_document({"name": "é\x1b\n"})
    line = capsys.readouterr().out
    assert line.isascii()
    assert list(json.loads(line).items()) == [("schema_version", 1), ("name", "é\x1b\n")]
    assert line.count("\n") == 1


def test_notes_are_for_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    for out.mode in (Mode.JSON, Mode.QUIET):
        out.note("passing")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("option", "environment", "tty", "expected"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"TERM": "dumb"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
        ("always", {"NO_COLOR": "1"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour(
    option: str, environment: dict[str, str], tty: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = terminal() if tty else io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", stream)
    out = Output(color=option)
    out.check(True, "fine")
    out.table(("name",), [("x",)])
    assert ("\x1b[" in text_of(stream)) is expected
    assert out.colored(stream) is expected


def test_marks_have_an_ascii_form(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal("ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    out = Output(color="never")
    out.check(True, "shape 2×3")
    out.check(False, "größer → worse…")
    out.table(("µs",), [("ünicode",)])
    assert text_of(stream) == "ok   shape 2x3\nFAIL gr\\xf6\\xdfer -> worse...\nus\n\\xfcnicode\n"


def test_control_characters_are_made_visible(capsys: pytest.CaptureFixture[str]) -> None:
    out = Output()
    hostile = "\x1b[2J\u202eevil\ud800\r\n"
    out.line(hostile)
    out.record({"name": hostile})
    out.table(("name",), [(hostile,)])
    out.check(True, hostile)
    out.error(hostile)
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert "\\x1b[2J" in text
    assert clean("plain text") == "plain text"
    assert clean("a\nb", keep="\n") == "a\nb"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (96 << 30, "96.0 GiB"),
        (1 << 70, "1024.0 EiB"),
    ],
)
def test_sizes_read_well(size: int, text: str) -> None:
    assert size_text(size) == text
