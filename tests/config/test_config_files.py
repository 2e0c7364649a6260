"""Settings from files: found, judged, merged below the environment, and read by everything of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cache_server.remote.options import RemoteOptions
from cache_server.service.settings import ServiceSettings
from cache_server.settings import CacheSettings
from neuron_runtime.config import layers
from neuron_runtime.config.layers import load_layers, settings_environment
from neuron_runtime.config.registry import DEFAULTS, FROM_THE_ENVIRONMENT_ONLY, NOT_FROM_A_PROJECT, SECRET, file_key
from neuron_runtime.daemon.settings import DaemonSettings
from neuron_runtime.errors import NeuronEnvError
from neuron_runtime.protocol.paths import runtime_paths

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str, str], Path]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a project in it, which is the working directory; no setting in the environment."""
    for name in [name for name in os.environ if name.startswith(("NEURON", "TORCH_NEURONX", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(layers, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")
    (tmp_path / "home" / "project" / "deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "home" / "project" / "deep")
    return tmp_path / "home"


@pytest.fixture
def write(home: Path) -> Write:
    """Writes the file of a layer."""
    places = {
        "project": home / "project" / "neuron-env.toml",
        "user": home / ".config" / "neuron-env" / "config.toml",
        "system": home.parent / "etc" / "config.toml",
    }

    def put(layer: str, text: str) -> Path:
        places[layer].parent.mkdir(parents=True, exist_ok=True)
        places[layer].write_text(text)
        places[layer].chmod(0o600)
        return places[layer]

    return put


def test_the_strongest_layer_wins_setting_by_setting(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("system", '[cache]\nurl = "/srv/system"\nnamespace = "system"\nverify = "always"\n[runtime]\nwarm = 3\n')
    user = write("user", '[cache]\nurl = "/srv/user"\nnamespace = "user"\n')
    project = write("project", '[cache]\nurl = "/srv/project"\n')
    monkeypatch.setenv("NEURON_ENV_RUNTIME_WARM", "7")
    found = load_layers()
    assert [(f.layer, f.path) for f in found.files][:2] == [("project", project), ("user", user)]
    values = {
        key: found.origin(f"NEURON_ENV_{key}")
        for key in ("CACHE_URL", "CACHE_NAMESPACE", "CACHE_VERIFY", "RUNTIME_WARM", "JOB")
    }
    assert {key: (origin.value, origin.source) for key, origin in values.items()} == {
        "CACHE_URL": ("/srv/project", "project"),
        "CACHE_NAMESPACE": ("user", "user"),
        "CACHE_VERIFY": ("always", "system"),
        "RUNTIME_WARM": ("7", "environment"),
        "JOB": (None, "default"),
    }
    assert found.merged()["NEURON_ENV_RUNTIME_WARM"] == "7"


def test_every_settings_class_reads_the_files(write: Write, home: Path) -> None:
    write(
        "user",
        'instance_type = "trn2.48xlarge"\n'
        f'[cache]\nurl = "{home}/shared"\nlocal_dir = "~/local"\nhttp_timeout = 9.5\nrequire_hit = true\n'
        '[runtime]\ndir = "/run/mine"\nidle_timeout = 0\n[compile]\nslots = 2\n'
        '[server]\nstore = "/srv/store"\nquotas = ["a=1GiB", "b=2GiB"]\n',
    )
    cache = CacheSettings.from_environment()
    assert (cache.url, cache.local_dir, cache.require_hit, cache.compile_slots) == (
        f"{home}/shared",
        home / "local",
        True,
        2,
    )
    assert CacheSettings.from_environment(url="/given").url == "/given"
    assert RemoteOptions.from_environment("http://host").timeout_seconds == 9.5
    assert DaemonSettings.from_environment().machine.instance.name == "trn2.48xlarge"
    assert DaemonSettings.from_environment().idle_timeout is None
    assert str(runtime_paths().directory) == "/run/mine"
    service = ServiceSettings.from_environment()
    assert (service.store, service.quotas) == ("/srv/store", {"a": 1 << 30, "b": 2 << 30})


def test_an_empty_variable_hides_the_files(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("user", '[cache]\nnamespace = "user"\n')
    monkeypatch.setenv("NEURON_ENV_CACHE_NAMESPACE", "")
    assert load_layers().origin("NEURON_ENV_CACHE_NAMESPACE").source == "default"
    assert CacheSettings.from_environment(url="none", local_dir="/x").namespace == "default"


def test_without_files_the_environment_is_left_as_it_is(home: Path) -> None:
    assert settings_environment() is os.environ


def test_one_file_can_be_named_or_all_be_left_out(write: Write, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write("user", '[cache]\nnamespace = "user"\n')
    other = home / "other.toml"
    other.write_text('job = "nightly"\n')
    monkeypatch.setenv("NEURON_ENV_CONFIG", str(other))
    found = load_layers()
    assert [(f.layer, dict(f.values)) for f in found.files] == [("chosen", {"NEURON_ENV_JOB": "nightly"})]
    monkeypatch.setenv("NEURON_ENV_CONFIG", "none")
    assert load_layers().files == ()
    monkeypatch.setenv("NEURON_ENV_CONFIG", str(home / "missing.toml"))
    with pytest.raises(NeuronEnvError, match="names a file that is not there"):
        load_layers()


def test_a_project_ends_at_its_repository_and_at_home(write: Write, home: Path) -> None:
    write("project", 'job = "outer"\n')
    assert load_layers().origin("NEURON_ENV_JOB").value == "outer"
    (home / "project" / "deep" / ".git").mkdir()
    assert load_layers().files == ()
    (home.parent / "neuron-env.toml").write_text('job = "above home"\n')
    assert load_layers(directory=home).files == ()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[cache]\nurll = 'x'\n", "there is no setting `cache.urll`; did you mean `cache.url`?"),
        ("cache_url = 'x'\n", "there is no setting `cache_url`"),
        ("[cache.url]\nx = 1\n", "`cache.url` is neither text"),
        ("[cache]\nurl = 2027-01-01\n", "`cache.url` is neither text"),
        ("[cache]\nurl = ", "is no TOML"),
        ("\x00", "is no TOML"),
        ("[cache]\ntoken = 't'\n", "`cache.token` may not be set by a project's file"),
        ("[server]\nstore = '/x'\n", "`server.store` may not be set by a project's file"),
        ("[cache]\ntrusted_keys = 'ed25519:x'\n", "`cache.trusted_keys` may not be set by a project's file"),
    ],
)
def test_a_file_that_is_wrong_is_named_with_what_is_wrong(write: Write, text: str, complaint: str) -> None:
    path = write("project", text)
    with pytest.raises(NeuronEnvError) as raised:
        load_layers()
    assert complaint in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_token_is_read_only_from_a_private_file(write: Write) -> None:
    path = write("user", "[cache]\ntoken = 'abc'\n")
    assert RemoteOptions.from_environment("http://host").token == "abc"
    path.chmod(0o640)
    with pytest.raises(NeuronEnvError, match="others may read it") as raised:
        load_layers()
    assert raised.value.hint == f"type `chmod 600 {path}`"


def test_a_project_file_that_anybody_may_write_is_ignored(write: Write) -> None:
    path = write("project", 'job = "planted"\n')
    path.chmod(0o666)
    (file,) = load_layers().files
    assert (file.ignored, dict(file.values)) == ("everybody may write to it", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_project_file_of_another_user_is_ignored(write: Write) -> None:
    os.chown(write("project", 'job = "planted"\n'), 12345, 12345)
    (file,) = load_layers().files
    assert file.ignored == "it belongs to another user (uid 12345)"


def test_the_daemon_gets_what_the_files_say(write: Write, home: Path) -> None:
    """A program's settings reach the daemon that it starts, which runs in another directory."""
    write("project", 'instance_type = "trn3.48xlarge"\n')
    program = (
        "from neuron_runtime.config.layers import settings_environment\n"
        "from neuron_runtime.daemon.settings import DaemonSettings\n"
        "import os; merged = settings_environment(); os.chdir('/')\n"
        "print(DaemonSettings.from_environment(merged).machine.instance.name)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "trn3.48xlarge\n"


def test_the_registry_is_the_settings_page() -> None:
    """A new setting needs a row in docs/settings.md and a line, with the same default, in config/registry.py."""
    rows = {}
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        if found := re.match(r"\| (`NEURON_ENV_[^|]+) \| ([^|]*) \|", line):
            default = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", found[2]).replace("`", "").strip()
            rows |= dict.fromkeys(re.findall(r"`([A-Z0-9_]+)`", found[1]), default)
    rows = {name: default for name, default in rows.items() if name not in FROM_THE_ENVIRONMENT_ONLY}
    described = {"NEURON_ENV_COLOR", "NEURON_ENV_DEBUG", "NEURON_ENV_NO_PROGRESS"}
    assert rows == {name: default for name, default in DEFAULTS.items() if name not in described}
    assert DEFAULTS.keys() >= SECRET | NOT_FROM_A_PROJECT
    assert len({file_key(name) for name in DEFAULTS}) == len(DEFAULTS)
