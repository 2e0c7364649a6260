"""The command lines of callers, read."""

from __future__ import annotations

import pytest

from cache_server.launcher.arguments import Call, NotCached, Option


def call(line: str) -> Call:
    return Call.parse(line.split())


def test_the_line_of_torch_neuronx() -> None:
    read = call(
        "compile module.hlo.pb --framework XLA --target trn2 --lnc 2 -O1 --model-type transformer --auto-cast=none"
        " --enable-saturate-infinity --output module.neff"
    )
    assert (read.inputs, read.output) == (("module.hlo.pb",), "module.neff")
    assert read.options == (
        Option("--framework", "XLA"),
        Option("--target", "trn2"),
        Option("--lnc", "2"),
        Option("-O", "1"),
        Option("--model-type", "transformer"),
        Option("--auto-cast", "none"),
        Option("--enable-saturate-infinity", None),
    )


def test_options_before_the_verb() -> None:
    read = call("--target=trn1 compile --framework XLA /w/model.hlo_module.pb --output /w/model.neff --verbose=35")
    assert (read.inputs, read.output) == (("/w/model.hlo_module.pb",), "/w/model.neff")
    assert call("--target trn1 --switch compile in.pb").inputs == ("in.pb",)


def test_a_word_behind_an_unknown_option_is_its_value_unless_there_is_no_other_input() -> None:
    assert call("compile in.pb --new thing").options == (Option("--new", "thing"),)
    read = call("compile --new in.pb --target trn2")
    assert read.inputs == ("in.pb",)
    assert Option("--new", None) in read.options


def test_the_last_of_several_counts() -> None:
    read = call("compile in.pb --output a -o b --target trn1 --target=trn2")
    assert (read.output, read.last("--target")) == ("b", "trn2")


def test_everything_behind_two_dashes_is_an_input() -> None:
    assert call("compile --target trn2 -- -odd.pb --x").inputs == ("-odd.pb", "--x")


def test_negative_numbers_are_values() -> None:
    assert Option("--seed", "-1") in call("compile in.pb --seed -1").options


@pytest.mark.parametrize("line", ["", "list-operators", "help compile", "compile", "compile --target trn2"])
def test_no_compile(line: str) -> None:
    with pytest.raises(NotCached):
        call(line)


@pytest.mark.parametrize(
    "option", ["--workdir w", "--dump-to=d", "--pipeline=SaveTemps", "--internal-options=--dump", "--artifact-dir a"]
)
def test_files_that_nobody_can_name(option: str) -> None:
    with pytest.raises(NotCached, match="files that the cache does not keep"):
        call(f"compile in.pb --target trn2 {option}")


def test_outputs_may_have_any_name() -> None:
    assert call("compile in.pb --output /tmp/workdir/dump.neff --logfile dump.log").output == "/tmp/workdir/dump.neff"
