"""neuron-env launcher: the cache in front of the real compiler."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from .output import Mode, json_option, output

_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The launcher's directory.  [default: libexec/neuron-env of this installation]",
)


@click.group("launcher")
def launcher() -> None:
    """Put the cache in front of the real neuronx-cc.

    \b
    Examples:
      neuron-env launcher install
      export PATH="$(neuron-env launcher install --quiet):$PATH"
      neuron-env launcher status

    The launcher is a `neuronx-cc` in a directory of its own, which goes before the real one's on PATH. Compiles go
    through the cache that `NEURON_ENV_CACHE_URL` names; everything else goes to the real compiler as it is.
    """


@launcher.command("install")
@_DIRECTORY
@click.option("-q", "--quiet", is_flag=True, help="Print the directory only.")
def install_command(directory: Path | None, quiet: bool) -> None:
    """Write the launcher, and say what to put on PATH.

    Run it again after an upgrade of neuron-env, or when its environment has moved. An upgrade of the compiler needs
    nothing.
    """
    from cache_server.launcher import installing

    chosen = _chosen(directory)
    target = installing.install(chosen)
    out = output()
    if quiet:
        out.line(str(chosen))
        return
    out.line(f"installed {target}")
    found = installing.standing(chosen, os.environ)
    if found.next is not None:
        out.line(f"it runs   {found.next}")
    if found.problem:
        out.line(f"put it before the real compiler: export PATH={shlex.quote(str(chosen))}:$PATH")


@launcher.command("uninstall")
@_DIRECTORY
def uninstall_command(directory: Path | None) -> None:
    """Remove the launcher. The cache stays as it is."""
    from cache_server.launcher import installing

    output().line(f"removed {installing.uninstall(_chosen(directory))}")


@launcher.command("status")
@_DIRECTORY
@json_option
@click.pass_context
def status_command(context: click.Context, directory: Path | None) -> None:
    """Tell whether compiles go through the cache with this PATH; exit 1 if not."""
    from cache_server.launcher import installing
    from cache_server.launcher.arguments import NotCached
    from cache_server.launcher.version import compiler_at
    from cache_server.settings import CacheSettings

    out = output()
    found = installing.standing(_chosen(directory), os.environ)
    settings = CacheSettings.from_environment()
    problem, version = found.problem, None
    if os.environ.get("NEURON_ENV_LAUNCHER") == "off":
        problem = problem or "`NEURON_ENV_LAUNCHER` is off"
    if found.next is not None:
        try:
            version = " ".join(compiler_at(found.next, settings.local_dir / "launcher", os.environ))
        except NotCached as why:
            problem = problem or str(why)
    fields = {
        "launcher": str(found.shim) if found.shim else None,
        "first_on_path": str(found.first) if found.first else None,
        "runs": str(found.next) if found.next else None,
        "compiler": version,
        "shared_cache": settings.url,
        "problem": problem,
    }
    if out.mode is Mode.JSON:
        out.json_document(fields)
    else:
        out.record({name.replace("_", " "): value for name, value in fields.items() if name != "problem"})
        out.check(problem is None, problem or "compiles go through the cache")
    context.exit(0 if problem is None else 1)


def _chosen(directory: Path | None) -> Path:
    from cache_server.launcher import installing

    return installing.default_directory() if directory is None else directory.absolute()
