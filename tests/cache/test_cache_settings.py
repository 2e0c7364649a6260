"""Settings: option, environment, default; and no default in a place that anybody can write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cache_server.cache import NeffCache
from cache_server.errors import CacheError
from cache_server.settings import CacheSettings


def from_environment(environ: dict[str, str], **options: Any) -> CacheSettings:
    return CacheSettings.from_environment(environ, **options)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_default_is_the_users_own_cache_and_private(home: Path) -> None:
    settings = from_environment({"XDG_CACHE_HOME": str(home)})
    assert settings.url == str(home / "neuron-env" / "shared")
    assert settings.local_dir == home / "neuron-env" / "local"
    assert settings.permissions == "private"
    assert (settings.lease_seconds, settings.wait_seconds, settings.failure_ttl_seconds) == (12.0, 3600.0, 3600.0)
    assert settings.enabled


def test_relative_cache_home_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert from_environment({"XDG_CACHE_HOME": "cache"}).local_dir == tmp_path / ".cache/neuron-env/local"


def test_store_that_was_named_is_shared_with_its_group(home: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(home), "NEURON_ENV_CACHE_URL": "/mnt/neff"}
    assert from_environment(environ).permissions == "group"
    assert from_environment({**environ, "NEURON_ENV_CACHE_PERMISSIONS": "private"}).permissions == "private"


def test_option_beats_environment_beats_vendor_beats_default(home: Path) -> None:
    environ = {"XDG_CACHE_HOME": str(home), "NEURON_COMPILE_CACHE_URL": "/vendor"}
    assert from_environment(environ).url == "/vendor"
    environ["NEURON_ENV_CACHE_URL"] = "/ours"
    assert from_environment(environ).url == "/ours"
    assert from_environment(environ, url="/option").url == "/option"


def test_variables_of_the_vendor_that_mean_the_same_are_honoured(home: Path, tmp_path: Path) -> None:
    settings = from_environment(
        {
            "XDG_CACHE_HOME": str(home),
            "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "theirs"),
            "TORCH_NEURONX_NEFF_CACHE_LOCK_TIMEOUT": "1200",
            "TORCH_NEURONX_NEFF_DISABLE_CACHE": "1",
            "NEURON_COMPILE_CACHE_URL": "s3://bucket/another-kind-of-cache",
        }
    )
    assert settings.local_dir == tmp_path / "theirs"
    assert settings.wait_seconds == 1200.0
    assert not settings.enabled
    assert settings.url == str(home / "neuron-env" / "shared")


def test_shared_store_can_be_switched_off(home: Path) -> None:
    settings = from_environment({"XDG_CACHE_HOME": str(home), "NEURON_ENV_CACHE_URL": "none"})
    assert settings.url is None
    assert NeffCache.open(settings=settings).storage is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_default_that_anybody_can_write_is_refused(home: Path, mode: int) -> None:
    home.mkdir()
    home.chmod(mode)
    with pytest.raises(CacheError, match="can be written by anybody") as caught:
        from_environment({"XDG_CACHE_HOME": str(home)})
    assert caught.value.hint is not None
    assert "NEURON_ENV_CACHE_URL" in caught.value.hint
    with pytest.raises(CacheError, match="can be written by anybody"):
        from_environment({"XDG_CACHE_HOME": str(home), "NEURON_ENV_CACHE_URL": "none"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NEURON_ENV_CACHE_LEASE_SECONDS", "soon", "not a number of seconds"),
        ("NEURON_ENV_CACHE_LEASE_SECONDS", "0", "makes no sense"),
        ("NEURON_ENV_CACHE_LEASE_SECONDS", "nan", "makes no sense"),
        ("NEURON_ENV_CACHE_WAIT_SECONDS", "-1", "0 or more"),
        ("NEURON_ENV_CACHE_WAIT_SECONDS", "nan", "0 or more"),
        ("NEURON_ENV_CACHE_RETRY_FAILURES", "maybe", "neither yes nor no"),
        ("NEURON_ENV_CACHE_VERIFY", "sometimes", "verify"),
        ("NEURON_ENV_CACHE_PERMISSIONS", "0644", "permission policy"),
        ("NEURON_ENV_CACHE_NAMESPACE", "../x", "namespace"),
    ],
)
def test_value_that_makes_no_sense_is_refused(home: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(CacheError, match=said):
        from_environment({"XDG_CACHE_HOME": str(home), name: value})


def test_import_brings_in_nothing_heavy() -> None:
    program = (
        "import sys, cache_server, cache_server.cache, cache_server.settings\n"
        "heavy = {'fsspec', 'filelock', 'asyncio', 'numpy', 'jaxlib', 'torch', 'rich', 'click'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
