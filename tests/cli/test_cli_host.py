"""collect, pins, config, completion, and the reference of all commands."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from cli.reference import reference

Invoke = Callable[..., Result]
Spawn = Callable[..., subprocess.CompletedProcess[bytes]]
ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_is_current() -> None:
    """After a change of a command: python -m cli.reference > docs/cli.md"""
    assert reference() == (ROOT / "docs" / "cli.md").read_text()


@pytest.mark.parametrize("command", ["collect", "pins check", "pins lock", "config show", "completion"])
def test_the_reference_has_every_new_command_with_examples(command: str) -> None:
    section = reference().partition(f"# neuron-env {command}\n\n```")[2].partition("\n#")[0]
    assert "Examples:" in section
    assert f"neuron-env {command}" in section.partition("Examples:")[2]


def test_collect_redacts_and_writes_files(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ada"))
    monkeypatch.setenv("NEURON_ENV_CACHE_URL", "https://user:pass@host/neffs")
    monkeypatch.setenv("NEURON_RT_ROOT_COMM_ID", "10.1.2.3:4000")
    target = tmp_path / "report.json"
    result = invoke("collect", "--no-proof", "--json", "--redact", "--output", target)
    assert (result.exit_code, result.stdout) == (1, "")
    document = json.loads(target.read_text())
    assert list(document)[:2] == ["schema_version", "usable"]
    variables = document["sections"]["variables"]
    assert variables["NEURON_RT_ROOT_COMM_ID"] == "ADDRESS:4000"
    assert str(tmp_path / "ada") not in target.read_text()
    assert "pass" not in variables["NEURON_ENV_CACHE_URL"]
    assert document["sections"]["caches"]["neuron-env local"]["place"].startswith("~/")


def test_looking_at_a_host_loads_nothing_heavy() -> None:
    program = (
        "import sys\nfrom cli.main import root\n"
        "for args in (['collect', '--no-proof', '--json'], ['pins', 'check', '--json'], ['config', 'show']):\n"
        "    try: root.main(args, prog_name='neuron-env')\n"
        "    except SystemExit: pass\n"
        "print('LOADED', *[m for m in ('torch', 'torch_neuronx', 'numpy', 'jaxlib', 'boto3') if m in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "LOADED"


def test_an_interrupted_collect_leaves_no_proof_behind(tmp_path: Path) -> None:
    for name in ("torch-2.14.0", "torch_neuronx-2.14.3.0.1"):
        (tmp_path / f"{name}.dist-info").mkdir()
        distribution, _, version = name.partition("-")
        (tmp_path / f"{name}.dist-info" / "METADATA").write_text(f"Name: {distribution}\nVersion: {version}\n")
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case $2 in
import*) echo '["3.12.0", "/venv", ["{tmp_path}"]]' ;;
*) echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid; exec sleep 600 ;;
esac
"""
    )
    python.chmod(0o755)
    collect = subprocess.Popen(
        [sys.executable, "-m", "cli.main", "collect", "--python", str(python), "--probe-timeout", "60"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists():
        assert collect.poll() is None
        assert time.monotonic() < deadline
        os.sched_yield()
    proof = os.pidfd_open(int((tmp_path / "pid").read_text()))
    collect.send_signal(signal.SIGINT)
    _, err = collect.communicate(timeout=60)
    assert (collect.returncode, err.strip()) == (130, b"error: interrupted")
    assert select.select([proof], [], [], 60)[0], "the proof runs on"
    os.close(proof)


def test_collect_as_markdown(invoke: Invoke) -> None:
    result = invoke("collect", "--no-proof", "--markdown")
    assert result.exit_code == 1
    assert result.stdout.startswith("### neuron-env collect\n\n- **verdict**: not proved")


@pytest.mark.parametrize(
    ("args", "complaint", "code"),
    [
        (["collect", "--json", "--markdown"], "exclude each other", 2),
        (["collect", "--image", "torch-neuronx:2.14.0"], "is not the directory of an unpacked image", 1),
        (["collect", "--no-proof", "--output", "/nowhere/x"], "cannot write /nowhere/x: No such file or directory", 1),
        (["pins", "check", "--lock", "x", "--sdk", "2.33.0"], "`--lock` already names a set", 2),
        (["pins", "check", "--lock", "missing.lock"], "there is no lock at missing.lock", 1),
        (["pins", "check", "--freeze", "missing.txt"], "missing.txt cannot be read: No such file or directory", 1),
        (["pins", "check", "--freeze", "-", "--image", "x"], "`--freeze` excludes", 2),
        (["pins", "check", "--python", "/nowhere/python"], "no program `/nowhere/python`", 1),
        (["pins", "lock", "--sdk", "2.32.0"], "SDK 2.32.0 has no torch-neuronx", 1),
        (["pins", "show", "9.9"], "SDK 9.9 is not in the catalog", 1),
        (["config", "show", "cache.urll"], "there is no setting `cache.urll`; did you mean `cache.url`?", 2),
        (["completion", "tcsh"], "there is no completion for the shell `tcsh`", 2),
    ],
)
def test_wrong_use_is_explained(invoke: Invoke, args: list[str], complaint: str, code: int) -> None:
    result = invoke(*args)
    assert result.exit_code == code
    assert complaint in result.stderr


def test_pins_list_and_show(invoke: Invoke) -> None:
    assert invoke("pins", "list", "--quiet").stdout.split()[:2] == ["2.33.1", "2.33.0"]
    assert "2.31.7.0" in invoke("pins", "list").stdout
    document = json.loads(invoke("pins", "show", "2.33.0", "--json").stdout)
    assert document["schema_version"] == 1
    assert {component["source"] for component in document["components"]} <= document["sources"].keys()
    text = invoke("pins", "show", "2.33.0").stdout
    assert "needs aws-neuronx-dkms 2.31 or newer" in text
    assert "third-party: " in text


def test_pins_lock_is_what_pip_takes_and_check_reads(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke("pins", "lock", "--sdk", "2.33.0", "--torch", "2.14").exit_code == 0
    assert tomllib.loads(Path("neuron-env.lock").read_text())["python-packages"]["nki"] == "0.7.0"
    # pip itself reads the constraints, and says without a network what they made of the request.
    pip = subprocess.run(
        [sys.executable, "-m", "pip", "install", "--no-index", "--dry-run", "-c", "constraints.txt", "nki"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert "(constraint) nki==0.7.0" in pip.stdout + pip.stderr
    assert invoke("pins", "lock", "--sdk", "2.33.0", "--torch", "2.14").exit_code == 0
    other = invoke("pins", "lock", "--sdk", "2.31.1")
    assert (other.exit_code, "give `--force`" in other.stderr) == (1, True)
    Path("freeze.txt").write_text("torch==2.14.0\ntorch-neuronx==2.14.3.0.9\nneuronx-cc==2.28.7631.0\nnki==0.7.0\n")
    result = invoke("pins", "check", "--freeze", "freeze.txt")
    assert (result.exit_code, "named by neuron-env.lock" in result.stdout) == (0, True)
    assert invoke("pins", "lock", "--sdk", "2.31.1", "--force").exit_code == 0
    assert invoke("pins", "check", "--freeze", "freeze.txt").exit_code == 1


def test_pins_check_as_json_reads_stdin(invoke: Invoke) -> None:
    result = invoke("pins", "check", "--freeze", "-", "--json", input="torch==2.14.0\ntorch-neuronx==1.0\n")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (document["schema_version"], document["ok"], document["source"]) == (1, False, "stdin")
    assert document["findings"][0]["id"] == "placeholder-package"


def test_install_commands_are_shell(invoke: Invoke) -> None:
    result = invoke("pins", "install-command", "--sdk", "2.33.0", "--torch", "2.13")
    for line in result.stdout.splitlines():
        subprocess.run(["sh", "-n", "-c", line], check=True)
    assert "'torch-neuronx==2.13.3.0.*'" in result.stdout
    assert "aws-neuronx-dkms" in result.stdout
    assert "aws-neuronx-dkms" not in invoke("pins", "install-command", "--container").stdout
    assert len(json.loads(invoke("pins", "install-command", "--only", "python", "--json").stdout)["commands"]) == 1


def test_pins_upgrade(invoke: Invoke) -> None:
    result = invoke("pins", "upgrade", "--from-sdk", "2.31.1", "--sdk", "2.33.0")
    assert result.stdout.startswith("from SDK 2.31.1 with torch 2.9 (xla) to SDK 2.33.0 with torch 2.14.0 (native)")
    assert json.loads(invoke("pins", "upgrade", "--from-sdk", "2.33.0", "--json").stdout)["changes"] == []


def test_config_show_names_the_origin(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.toml"
    file.write_text('color = "never"\n[cache]\nurl = "/srv/neffs"\ntoken = "abcdef"\n')
    file.chmod(0o600)
    monkeypatch.setenv("NEURON_ENV_CONFIG", str(file))
    monkeypatch.setenv("NEURON_ENV_CACHE_NAMESPACE", "team")
    lines = invoke("config", "show", "--origin", "--changed").stdout.splitlines()
    assert [line.split(maxsplit=2) for line in lines[1:3]] == [
        ["cache.url", "/srv/neffs", f"chosen file: {file}"],
        ["cache.namespace", "team", "environment: NEURON_ENV_CACHE_NAMESPACE"],
    ]
    document = json.loads(invoke("config", "show", "cache.token", "NEURON_ENV_JOB", "--json").stdout)
    assert [setting["value"] for setting in document["settings"]] == ["(set; not shown)", None]
    assert document["files"][0]["path"] == str(file)
    assert "abcdef" not in invoke("config", "show").stdout
    assert invoke("config", "files", "--quiet").stdout.split() == [str(file)]
    assert "no configuration file" in invoke("config", "files", env={"NEURON_ENV_CONFIG": "none"}).stdout


def test_colour_may_be_set_in_a_file(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('color = "always"\n')
    env = {"NEURON_ENV_CONFIG": str(file)}
    upgrade = ("pins", "upgrade", "--from-sdk", "2.31.1")
    assert "\x1b[" in invoke(*upgrade, env=env).stdout
    assert "\x1b[" not in invoke("--color", "never", *upgrade, env=env).stdout
    assert "\x1b[" not in invoke(*upgrade, env={**env, "NEURON_ENV_COLOR": "never"}).stdout
    file.write_text('color = "blue"\n')
    assert "the setting `color` is 'blue'" in invoke(*upgrade, env=env).stderr


def test_a_broken_file_fails_what_reads_it_and_leaves_help_alone(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[cache\n")
    env = {"NEURON_ENV_CONFIG": str(file)}
    assert invoke("--help", env=env).exit_code == 0
    assert invoke("pins", "list", env=env).exit_code == 0
    for args in (["config", "show"], ["cache", "status"], ["runtime", "status"]):
        result = invoke(*args, env=env)
        assert (result.exit_code, f"{file} is no TOML" in result.stderr) == (1, True), result.output


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_scripts_call_us_back(invoke: Invoke, shell: str) -> None:
    script = invoke("completion", shell).stdout
    assert "_NEURON_ENV_COMPLETE" in script


def test_completion_knows_versions_and_settings(spawn: Spawn) -> None:
    def complete(words: str) -> list[str]:
        env = {
            "_NEURON_ENV_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        program = "from cli.main import main; main()"
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **env},
            capture_output=True,
            text=True,
            check=True,
        )
        return [line.partition(",")[2] for line in run.stdout.split()]

    assert complete("neuron-env col") == ["collect"]
    assert complete("neuron-env pins lock --sdk 2.33") == ["2.33.0", "2.33.1"]
    assert complete("neuron-env pins lock --torch ") == ["2.14", "2.13", "2.9"]
