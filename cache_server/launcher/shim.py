"""The script that stands on PATH as `neuronx-cc`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

NAME = "neuronx-cc"
VERSION = 1
_MARK = "# neuron-env launcher "

# The shell starts in a millisecond, which is all that `--version` and its like pay. It goes on where the interpreter
# has gone away, too. A script with the mark in its second line is a launcher and never the next compiler, whatever name
# or link it is found by. Other wrappers may look for `neuronx-cc` on PATH themselves and find this one again: hence the
# list of what was run already, in which nothing may stand a third time. Within a compile of a launcher, another one
# passes everything on: it would wait for the key or the slot that the first one holds.
_TEMPLATE = f"""\
#!/bin/sh
{_MARK}{VERSION}
# Put here by `neuron-env launcher install`: compiles go through the cache, all else to the next {NAME} on PATH.
# `NEURON_ENV_LAUNCHER=off` goes straight to it, `NEURON_ENV_LAUNCHER=which` prints where it is.
python=@PYTHON@
program=@PROGRAM@
packages=@PACKAGES@

next=
looped=
set -f
before=$IFS
IFS=:
for directory in $PATH; do
    file=${{directory:-.}}/{NAME}
    if [ -f "$file" ] && [ -x "$file" ]; then
        first= second=
        {{ IFS= read -r first && IFS= read -r second; }} 2>/dev/null <"$file"
        case $second in "{_MARK}"*) continue ;; esac
        case ":$NEURON_ENV_LAUNCHER_RAN:" in
        *":$file:"*":$file:"*) looped=$file ;;
        *) next=$file; break ;;
        esac
    fi
done
IFS=$before
set +f
case $next in "" | /*) ;; *) next=$PWD/$next ;; esac

if [ "$NEURON_ENV_LAUNCHER" = which ]; then
    [ -n "$next" ] && printf '%s\\n' "$next"
    exit
fi
if [ -z "$next" ]; then
    if [ -n "$looped" ]; then
        echo "neuron-env launcher: $looped runs {NAME} from PATH again and again, and there is no other one" >&2
    else
        echo "neuron-env launcher: there is no other {NAME} on PATH behind this one ($0)" >&2
    fi
    exit 127
fi
inside=$NEURON_ENV_LAUNCHER_RAN
NEURON_ENV_LAUNCHER_RAN=${{NEURON_ENV_LAUNCHER_RAN:+$NEURON_ENV_LAUNCHER_RAN:}}$next
export NEURON_ENV_LAUNCHER_RAN

compile=
for word in "$@"; do
    case $word in
    compile) compile=yes ;;
    --help | -h | --version) compile=; break ;;
    esac
done
[ "$NEURON_ENV_LAUNCHER" = off ] || [ -n "$inside" ] && compile=
if [ -n "$compile" ] && [ -x "$python" ] && [ -r "$program" ]; then
    exec "$python" -I -S "$program" "$packages" "$next" "$@"
fi
exec "$next" "$@"
"""


def shim_text(python: Path, program: Path, packages: Sequence[Path]) -> str:
    """The script. `program` is run by `python` and finds its packages in the directories `packages`."""
    listed = ":".join(str(path) for path in packages)
    text = _TEMPLATE.replace("@PYTHON@", shlex.quote(str(python))).replace("@PROGRAM@", shlex.quote(str(program)))
    return text.replace("@PACKAGES@", shlex.quote(listed))


def is_shim(path: Path) -> bool:
    """Whether the file is a launcher, of any version. False for what cannot be read."""
    try:
        with path.open("rb") as file:
            lines = file.read(4096).split(b"\n")
    except OSError:
        return False
    return len(lines) > 1 and lines[1].startswith(_MARK.encode())
