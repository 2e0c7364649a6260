"""neuron-env cache serve, and the program `neuron-env-cache` for containers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .output import Output, output
from .units import duration, size

if TYPE_CHECKING:
    from cache_server.service.settings import ServiceSettings

_FILE = click.Path(path_type=Path)


def _env(name: str) -> str:
    return f"  [env: NEURON_ENV_SERVER_{name}]"


@click.command("serve")
@click.argument("store", required=False, metavar="[STORE]")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen.  [default: 127.0.0.1:7878]" + _env("LISTEN"))
@click.option("--state-dir", type=_FILE, help="This replica's own directory." + _env("STATE_DIR"))
@click.option("--capacity", type=size, metavar="SIZE", help="What the store may hold." + _env("CAPACITY"))
@click.option("--quota", type=size, metavar="SIZE", help="What a namespace may hold." + _env("QUOTA"))
@click.option("--quotas", metavar="NAME=SIZE,…", help="The same for some by name." + _env("QUOTAS"))
@click.option("--max-age", type=duration, metavar="TIME", help="Remove what was not used so long." + _env("MAX_AGE"))
@click.option("--max-ages", metavar="NAME=TIME,…", help="The same for some by name." + _env("MAX_AGES"))
@click.option("--keep-free", type=size, metavar="SIZE", help="What stays free on the store's disk." + _env("KEEP_FREE"))
@click.option("--tls-cert", type=_FILE, help="The certificate, PEM." + _env("TLS_CERT"))
@click.option("--tls-key", type=_FILE, help="Its key, PEM." + _env("TLS_KEY"))
@click.option("--client-ca", type=_FILE, help="Who signs clients' certificates, PEM." + _env("CLIENT_CA"))
@click.option("--client-scopes", type=_FILE, help="What they may do, TOML." + _env("CLIENT_SCOPES"))
@click.option(
    "--client-scope",
    type=click.Choice(["read", "write", "admin"]),
    help="What every such certificate allows." + _env("CLIENT_SCOPE"),
)
@click.option(
    "--anonymous",
    type=click.Choice(["none", "read", "write"]),
    help="What requests without credentials may do.  [default: write on loopback while there are no tokens, else none]"
    + _env("ANONYMOUS"),
)
@click.option("--signing-key", type=_FILE, help="The key that signs manifests." + _env("SIGNING_KEY"))
@click.option("--audit-log", type=_FILE, help="A file for a line a change." + _env("AUDIT_LOG"))
@click.option(
    "--log-format",
    type=click.Choice(["json", "text"]),
    help="How to log on stderr.  [default: text on a terminal, else json]" + _env("LOG_FORMAT"),
)
@click.option("--rate-limit", type=float, metavar="N", help="Requests a second by one principal." + _env("RATE_LIMIT"))
@click.option("--upload-limit", type=int, metavar="N", help="Its uploads at once." + _env("UPLOAD_LIMIT"))
@click.option("--redirect/--no-redirect", default=None, help="Send readers of large blobs to S3." + _env("REDIRECT"))
@click.option("--drain-seconds", type=duration, metavar="TIME", help="For requests at the end." + _env("DRAIN_SECONDS"))
@click.option("--drain-delay", type=duration, metavar="TIME", help="Listen on at the end." + _env("DRAIN_DELAY"))
def serve_command(**options: Any) -> None:
    """Serve the cache in STORE to a fleet: a directory, or an s3:// URL.

    \b
    Examples:
      neuron-env cache serve /srv/neuron-cache
      neuron-env cache serve s3://bucket/neff --listen 0.0.0.0:7878 --anonymous read

    STORE may come from NEURON_ENV_SERVER_STORE. Several replicas may serve one store. SIGTERM drains: those who
    wait are answered, running requests end, and the exit code is 0.
    """
    from cache_server.service.settings import ServiceSettings, parse_max_ages, parse_quotas

    for name, read in (("quotas", parse_quotas), ("max_ages", parse_max_ages)):
        if options[name] is not None:
            try:
                options[name] = read(options[name])
            except ValueError as error:
                raise click.BadParameter(str(error), param_hint=f"--{name.replace('_', '-')}") from None
    _run(ServiceSettings.from_environment(log_format_default=_log_format(), **options), output())


def main() -> NoReturn:
    """The program `neuron-env-cache`: everything comes from the environment."""
    from .errors import report

    out = Output()
    if len(sys.argv) > 1:
        wanted = sys.argv[1:] in (["-h"], ["--help"])
        out.trace(
            "usage: neuron-env-cache\n\nServes the NEFF cache; every setting comes from the environment, "
            "NEURON_ENV_SERVER_STORE first.\nSee `neuron-env cache serve --help`."
        )
        sys.exit(0 if wanted else 2)
    try:
        from cache_server.service.settings import ServiceSettings

        _run(ServiceSettings.from_environment(log_format_default=_log_format()), out)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  the last handler there is
        sys.exit(report(error, out))
    sys.exit(0)


def _run(settings: ServiceSettings, out: Output) -> None:
    from cache_server.service.logs import set_up_logs
    from cache_server.service.serve import serve

    set_up_logs(settings.log_format)

    def tell(line: str) -> None:
        out.line(line)
        sys.stdout.flush()

    serve(settings, tell=tell)


def _log_format() -> str:
    return "text" if sys.stderr.isatty() else "json"


if __name__ == "__main__":
    main()
