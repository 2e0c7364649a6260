"""neuronx-cc's command line as options: every spelling, one canonical form, nothing of the host in it."""

from __future__ import annotations

import pytest

from neuron_runtime.compiler.options import Command, CompileOptions, OptionsError


def test_the_line_that_torch_neuronx_runs():
    words = (
        "module.mlir --framework XLA --target trn2 --lnc 2 -O1 --model-type transformer --auto-cast=none"
        " --enable-saturate-infinity --output module.neff"
    )
    command = Command.parse(words.split())
    assert command.inputs == ("module.mlir",)
    assert command.settings == {"--output": "module.neff"}
    assert command.options == CompileOptions(
        opt_level=1, model_type="transformer", auto_cast="none", extra=("--enable-saturate-infinity",)
    )


@pytest.mark.parametrize(
    "spelling",
    [
        "--target=trn3 --lnc=1 --optlevel=3 --auto-cast none",
        "-O3 --lnc 1 --auto-cast=none --target trn3",
        "--optlevel 3 --logical-nc-config=1 --target trn3 --auto-cast none",
        "-O 3 --logical-nc-config 1 --framework XLA --target trn3 --auto-cast=none",
        "-O=3 --lnc 2 --lnc 1 --target trn2 --target trn3 --framework=xla --auto-cast=none",
    ],
)
def test_spelling_and_order_of_known_flags_do_not_show(spelling):
    assert CompileOptions.parse(spelling).flags == (
        "--framework=XLA",
        "--target=trn3",
        "--lnc=1",
        "--optlevel=3",
        "--auto-cast=none",
    )


def test_unknown_flags_keep_their_order_and_their_one_spelling():
    one = CompileOptions.parse("--zeta 1 --alpha=2 --enable-mixed-precision-accumulation --bare")
    assert one.extra == ("--zeta=1", "--alpha=2", "--enable-mixed-precision-accumulation", "--bare")
    assert one.flags[-4:] == one.extra
    assert CompileOptions.parse("--alpha=2 --zeta=1").flags != CompileOptions.parse("--zeta=1 --alpha=2").flags
    assert len(one.warnings) == 4
    assert "`--zeta=1`" in one.warnings[0]


def test_a_known_switch_does_not_swallow_the_input():
    command = Command.parse(["--enable-saturate-infinity", "module.mlir"])
    assert command.inputs == ("module.mlir",)


@pytest.mark.parametrize(
    "place",
    [
        "--output /scratch/host7/x.neff",
        "-o y.neff",
        "--verbose debug",
        "-v 35",
        "--logfile=/var/log/cc.txt",
        "--cache_dir=/mnt/cache --no_cache",
        "--workdir /tmp/a --retry_failed_compilation",
    ],
)
def test_where_files_go_is_no_flag(place):
    assert CompileOptions.parse(place).flags == CompileOptions().flags
    assert CompileOptions.parse(place).warnings == ()


def test_quoted_flags_are_split_as_a_shell_would():
    assert CompileOptions.parse("--tensorizer-options='--a --b'").extra == ("--tensorizer-options=--a --b",)
    with pytest.raises(OptionsError, match="cannot be split"):
        CompileOptions.parse("--x 'open")


@pytest.mark.parametrize(("target", "lnc"), [("trn2", 2), ("trn3", 2), ("trn1", 1), ("inf2", 1)])
def test_lnc_follows_the_target(target, lnc):
    assert CompileOptions(target=target).lnc == lnc
    assert CompileOptions.parse(f"--target {target}") == CompileOptions.parse(f"--lnc {lnc} --target {target}")


@pytest.mark.parametrize(
    ("flags", "names"),
    [
        ("--target gpu", ("`gpu`", "`--target`")),
        ("--target trn1 --lnc 2", ("`2`", "`--lnc`", "trn1")),
        ("--lnc 3", ("`3`", "`--lnc`")),
        ("--lnc 0", ("`0`", "`--lnc`")),
        ("--lnc two", ("`two`", "`--lnc`")),
        ("-O4", ("`4`", "`-O`")),
        ("-O0", ("`0`", "`-O`")),
        ("-Ofast", ("`fast`", "`-O`")),
        ("--optlevel=", ("``", "`-O`")),
        ("-O", ("`--optlevel`",)),
        ("--framework TENSORFLOW", ("`TENSORFLOW`", "`--framework`")),
        ("--auto-cast maybe", ("`maybe`", "`--auto-cast`")),
        ("--target", ("`--target`", "needs a value")),
        ("--output --target trn2", ("`--output`", "needs a value")),
        ("stray", ("`stray`",)),
    ],
)
def test_bad_value_is_refused_by_flag_and_value(flags, names):
    with pytest.raises(OptionsError) as error:
        CompileOptions.parse(flags)
    for name in names:
        assert name in error.value.message


def test_auto_cast_that_is_not_simulated_is_said():
    assert CompileOptions(auto_cast="none").warnings == ()
    (warning,) = CompileOptions(auto_cast="all").warnings
    assert "not simulated" in warning


def test_json_round_trip():
    options = CompileOptions.parse("--target trn3 -O1 --model-type transformer --foo bar")
    assert CompileOptions.from_json(options.to_json()) == options
