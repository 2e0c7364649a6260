"""neuron-env cache serve: what it refuses before it listens, and how it says so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

import click
import pytest
from click.testing import Result

from cache_server.service.settings import ServiceSettings
from cli.cache_serve import serve_command


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 1, "neuron-env cache serve /srv/neuron-cache"),
        (["/s", "--listen", "nowhere"], 1, "127.0.0.1:7878"),
        (["/s", "--quotas", "a:5"], 2, "namespace=size"),
        (["/s", "--capacity", "much"], 2, "10GiB"),
        (["/s", "--tls-cert", "c.pem"], 1, "--tls-key"),
        (["http://other:7878"], 1, "directory"),
        (["ftp://other/x"], 1, "no store of kind ftp://"),
    ],
)
def test_senseless_wish_is_refused_with_a_way_out(
    invoke: Callable[..., Result], arguments: list[str], code: int, said: str
) -> None:
    result = invoke("cache", "serve", *arguments)
    assert result.exit_code == code
    assert said in result.stderr


def test_every_option_names_its_variable() -> None:
    options = [option for option in serve_command.params if isinstance(option, click.Option)]
    assert len(options) > 12
    for option in options:
        name = str(option.name).upper()
        assert f"[env: NEURON_ENV_SERVER_{name}]" in str(option.help)
        assert option.name in {field.name for field in fields(ServiceSettings)}
