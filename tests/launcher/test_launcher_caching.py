"""Compiles through the launcher: what hits, what comes back, and what does not share a key."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path

import pytest
from launcher_kit import COMPILE, LINE, ROOT, Host, neff_bytes

from cache_server import CacheSettings, KeyParts, NeffCache
from cache_server.transfer import neuronxla
from cache_server.transfer.layouts import sort_members
from cache_server.transfer.source import open_source
from neuron_runtime.neff import read_neff


def test_a_hit_brings_the_same_file_and_runs_no_compiler(host: Host) -> None:
    host.compiler("neff; echo progress; echo a warning >&2")
    first = host.run(*COMPILE)
    assert (first.returncode, first.stdout, first.stderr) == (0, "progress\n", "a warning\n")
    other = host.directory("elsewhere")
    hit = host.run(*COMPILE, cwd=other)
    assert (hit.returncode, hit.stdout, hit.stderr) == (0, "", "")
    assert host.neff(other) == host.neff() == neff_bytes()
    assert (other / "module.neff").stat().st_mode == (host.work / "module.neff").stat().st_mode
    assert len(host.compiles) == 1


def test_another_host_hits_the_shared_tier(host: Host, tmp_path: Path) -> None:
    host.run(*COMPILE)
    other = Host(tmp_path / "other", store=host.store)
    assert other.run(*COMPILE).returncode == 0
    assert other.neff() == neff_bytes()
    assert other.compiles == []


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "--framework=XLA", "module.mlir", "--target=trn2", "--lnc=2", "-O1", "--model-type=transformer",
         "--auto-cast=none", "--output=out.neff"],
        ["--target=trn2", "compile", "--framework", "XLA", "{dir}/module.mlir", "-o", "{dir}/out.neff", "--verbose=35",
         "--optlevel", "1", "--logical-nc-config=2", "--auto-cast", "none", "--model-type", "transformer"],
        ["compile", "@words.txt", "module.mlir"],
        ["compile", "-", *LINE],
    ],
    ids=["equals signs", "as libneuronxla", "response file", "standard input"],
)  # fmt: skip
def test_the_same_compile_in_another_spelling_hits(host: Host, words: list[str]) -> None:
    host.run(*COMPILE)
    other = host.directory("elsewhere")
    (other / "words.txt").write_text("\n".join(LINE))
    graph = (other / "module.mlir").read_text()
    done = host.run(*(word.format(dir=other) for word in words), cwd=other, input=graph)
    assert (done.returncode, done.stderr) == (0, "")
    written = [path for path in other.iterdir() if path.suffix == ".neff"]
    assert [path.read_bytes() for path in written] == [neff_bytes()]
    assert len(host.compiles) == 1


def test_standard_input_reaches_the_compiler(host: Host) -> None:
    host.compiler('cat >"$here/received"; neff')
    assert host.run("compile", "-", *LINE, input="the program").returncode == 0
    assert (host.root / "received").read_text() == "the program"


def test_the_default_output_is_restored(host: Host) -> None:
    words = ["compile", "module.mlir", "--target", "trn2"]
    host.run(*words)
    other = host.directory("elsewhere")
    host.run(*words, cwd=other)
    assert (other / "file.neff").read_bytes() == neff_bytes()
    assert len(host.compiles) == 1


@pytest.mark.parametrize(
    "change",
    [["-O2"], ["--target", "trn3"], ["--lnc", "1"], ["--new-option"], ["--auto-cast", "all"]],
    ids=lambda words: " ".join(words),
)
def test_flags_are_part_of_the_key(host: Host, change: list[str]) -> None:
    host.run(*COMPILE)
    host.run(*COMPILE, *change)
    assert len(host.compiles) == 2


def test_another_compiler_and_another_graph_compile_again(host: Host) -> None:
    host.run(*COMPILE)
    host.compiler("neff", version="2.29.1.0+0")
    host.run(*COMPILE)
    assert len(host.compiles) == 2
    host.run(*COMPILE, cwd=host.directory("other", "module { }\n"))
    assert len(host.compiles) == 3


def test_the_version_is_asked_once_for_an_installation(host: Host) -> None:
    for number in range(3):
        host.run("compile", "module.mlir", *LINE, f"--option={number}")
    assert (host.root / "asked").read_text() == "asked\n"
    host.compiler("neff", version="2.29.1.0+0")
    host.run(*COMPILE)
    assert (host.root / "asked").read_text() == "asked\n" * 2


def test_files_that_options_name_count_by_content(host: Host) -> None:
    for place, content in (("a", "one"), ("b", "one"), ("c", "two")):
        work = host.directory(place)
        (work / f"config-{place}").mkdir()
        file = work / f"config-{place}" / "tuning.json"
        file.write_text(content)
        assert host.run(*COMPILE, f"--internal-options=--tuning={file} --x", cwd=work).returncode == 0
    assert len(host.compiles) == 2


def test_a_kernel_that_the_graph_names_counts_by_content(host: Host, tmp_path: Path) -> None:
    kernel = tmp_path / "kernel.klir"
    config = base64.b64encode(json.dumps({"kernel": {"binary": str(kernel)}}).encode()).decode()
    graph = f'module {{ stablehlo.custom_call @nki() {{backend_config = "{config}"}} }}\n'
    work = host.directory("kernels", graph)
    for content in ("one", "one", "two"):
        kernel.write_text(content)
        host.run(*COMPILE, cwd=work)
    assert len(host.compiles) == 2


def test_the_script_that_made_the_graph_does_not_count(host: Host, tmp_path: Path) -> None:
    for place in ("venv", "another-venv"):
        script = tmp_path / place / "bin" / "torchrun"
        script.parent.mkdir(parents=True)
        script.write_text(f"made in {place}")
        graph = f'module {{ func.func @main() {{ return loc("{script}":5:1) }} }}\n'
        host.run(*COMPILE, cwd=host.directory(place, graph))
    assert len(host.compiles) == 1


def test_flags_in_the_environment_count_unless_they_are_on_the_command_line(host: Host) -> None:
    host.run(*COMPILE)
    host.run(*COMPILE, env={"NEURON_CC_FLAGS": "--model-type=transformer --cache_dir=/somewhere"})
    assert len(host.compiles) == 1
    host.run(*COMPILE, env={"NEURON_CC_FLAGS": "--enable-saturate-infinity"})
    assert len(host.compiles) == 2


def test_several_modules_are_one_compile(host: Host) -> None:
    for place, second in (("a", "module {}"), ("b", "module {}"), ("c", "module { }")):
        work = host.directory(place)
        (work / "second.mlir").write_text(second)
        host.run("compile", "module.mlir", "second.mlir", *LINE, cwd=work)
    assert len(host.compiles) == 2
    assert "module.mlir second.mlir" in host.compiles[0]


def test_a_log_and_a_file_that_an_option_names_come_back(host: Host, tmp_path: Path) -> None:
    host.compiler('neff; echo a log >"$logfile"; echo "{}" >metrics/out.json')
    words = [*COMPILE, "--metrics-file", "metrics/out.json", "--logfile"]
    for place in ("a", "b"):
        work = host.directory(place)
        (work / "metrics").mkdir()
        done = host.run(*words, f"log-{place}.txt", cwd=work)
        assert (done.returncode, done.stderr) == (0, "")
        assert (work / f"log-{place}.txt").read_text() == "a log\n"
        assert (work / "metrics" / "out.json").read_text() == "{}\n"
    other = Host(tmp_path / "other", store=host.store)
    (other.work / "metrics").mkdir()
    other.run(*words, "log.txt")
    assert (other.work / "log.txt").read_text() == "a log\n"
    assert len(host.compiles) + len(other.compiles) == 1
    assert host.neff(host.root / "b") == neff_bytes()


def test_a_log_asked_for_is_not_missing_after_a_compile_without_one(host: Host) -> None:
    host.compiler('neff; [ -z "$logfile" ] || echo a log >"$logfile"')
    host.run(*COMPILE)
    host.run(*COMPILE, "--logfile", "log.txt")
    assert (host.work / "log.txt").read_text() == "a log\n"


def test_modes_of_the_client_hold(host: Host, tmp_path: Path) -> None:
    strict = Host(tmp_path / "strict", store=host.store)
    strict.settings = {"NEURON_ENV_CACHE_REQUIRE_HIT": "1"}
    done = strict.run(*COMPILE)
    assert done.returncode == 75
    assert "module.mlir" in done.stderr
    assert "this job must not compile" in done.stderr
    assert strict.run(*COMPILE, "--dump=x").returncode == 75
    assert strict.compiles == []
    assert strict.run("--version").returncode == 0

    reader = Host(tmp_path / "reader", store=host.store)
    reader.settings = {"NEURON_ENV_CACHE_MODE": "read-only"}
    assert reader.run(*COMPILE).returncode == 0
    assert len(reader.compiles) == 1
    assert not Path(host.store).exists()

    host.run(*COMPILE)
    assert strict.run(*COMPILE).returncode == 0
    offline = Host(tmp_path / "offline")
    offline.settings = {"NEURON_ENV_CACHE_URL": "none", "NEURON_ENV_CACHE_OVERLAY": str(host.store)}
    assert offline.run(*COMPILE).returncode == 0
    assert offline.compiles == []


def test_the_simulators_compiler_as_the_real_one(host: Host, tmp_path: Path) -> None:
    """Both on PATH as `neuronx-cc`; what the launcher restores is what the compiler wrote."""

    script = host.real / "neuronx-cc"
    run = f"PYTHONPATH={ROOT} exec {sys.executable} -m neuron_runtime.compiler.cc"
    script.write_text(f'#!/bin/sh\necho run >>"{host.root}/compiles"\n{run} "$@"\n')
    done = host.run(*COMPILE)
    assert (done.returncode, done.stderr) == (0, "")
    made = read_neff(host.work / "module.neff")
    assert made.manifest is not None
    other = Host(tmp_path / "other", store=host.store)
    (other.real / "neuronx-cc").write_text(script.read_text())
    before = len(host.compiles)
    assert other.run(*COMPILE).returncode == 0
    assert other.neff() == host.neff()
    assert len(host.compiles) - before == 1  # which asked for the version of this other installation


def test_what_was_imported_from_libneuronxla_hits(host: Host, tmp_path: Path) -> None:
    """Its keys, made from an HLO file and a list of flags, are those of the command that had compiled it."""
    made = neff_bytes(b"imported")
    module = tmp_path / "legacy" / "neuronxcc-2.28.7631.0+9a1c2d3e" / "MODULE_1+aaaa"
    module.mkdir(parents=True)
    parts = parts_of_module(module, ["--target=trn1", "--model-type=transformer", "-O2"], b"hlo bytes")
    cache = NeffCache.open(settings=CacheSettings(str(host.store), tmp_path / "importer", compile_slots=0))
    cache.get_or_compile(parts, lambda: made)
    work = host.directory("legacy", b"hlo bytes")
    line = "--target=trn1 compile --framework XLA module.hlo.pb --output model.neff --model-type=transformer -O2"
    assert host.run(*line.split(), "--verbose=35", cwd=work).returncode == 0
    assert (work / "model.neff").read_bytes() == made
    assert host.compiles == []


def parts_of_module(module: Path, flags: list[str], hlo: bytes) -> KeyParts:
    """What `neuron-env cache import` takes for the key of a module."""
    for name, content in (("model.hlo_module.pb", hlo), ("compile_flags.json", json.dumps(flags).encode())):
        (module / name).write_bytes(content)
    with open_source(module.parents[1]) as source:
        found = sort_members(source.members)
        [((version, name), files)] = found.modules.items()
        parts = neuronxla.parts_of(source, neuronxla.Module(version, name, files))
    assert isinstance(parts, KeyParts), parts
    return parts
