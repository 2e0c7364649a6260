"""One command of the launcher: through the cache if it is a compile that can be kept, else to the real compiler."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from signal import SIGINT
from typing import TYPE_CHECKING, NoReturn

from cache_server.errors import CacheError
from cache_server.launcher.arguments import NotCached
from cache_server.launcher.files import NotKept, lacks, put_down, take_up
from cache_server.launcher.request import Request, understand
from cache_server.launcher.signals import Interrupted, Signals, die_of
from cache_server.launcher.version import compiler_at
from cache_server.launcher.warning import say
from cache_server.local import LocalTier
from cache_server.settings import CacheSettings
from neuron_runtime.compiler.errors import CompileFailure
from neuron_runtime.config.layers import settings_environment

if TYPE_CHECKING:
    from cache_server.outputs import Built
    from cache_server.result import Waiting

_FIRST_WORD, _NEXT_WORD = 10.0, 60.0  # seconds of waiting after which people are told of it
_MUST_HIT = 75  # sysexits.h: not now, perhaps later


def main(real: str, arguments: Sequence[str]) -> int:
    """Does what `real` would do with `arguments`; returns its exit status, or becomes it."""
    command = Command(real, arguments)
    try:
        return command.run()
    except NotCached as why:
        if str(why) and command.must_hit:
            say(f"{why}, and this job must not compile (`NEURON_ENV_CACHE_REQUIRE_HIT`)")
            return _MUST_HIT
        if str(why):
            say(f"not cached: {why}")
        command.become_real()
    except KeyboardInterrupt:
        die_of(SIGINT)
    except Interrupted as signal:
        die_of(signal.number)
    except CompileFailure as failure:
        return command.end_with(failure)
    except NotKept as why:
        say(f"not kept in the cache: {why}")
        return 0
    except CacheError as error:
        if command.must_hit and not command.compiler.ran:
            say(f"{error}\n  hint: {error.hint}" if error.hint else str(error))
            return _MUST_HIT
        return command.go_on(f"{error}; {error.hint}" if error.hint else str(error))
    except Exception as error:  # noqa: BLE001 - no fault of the cache may fail a compile
        return command.go_on(f"{type(error).__name__}: {error}")


class Command:
    """One run of the launcher, as far as it has got."""

    def __init__(self, real: str, arguments: Sequence[str]) -> None:
        self.compiler = RealCompiler(real, arguments)
        self.must_hit = False

    def run(self) -> int:
        """The exit status. Raises what `main` knows how to end with."""
        environ = dict(settings_environment())
        # That directory is TorchNeuron's, whose users share it by its own rules; it keeps there what it gets from here.
        environ.pop("TORCH_NEURONX_NEFF_CACHE_DIR", None)
        if environ.get("TORCH_NEURONX_DISABLE_NEFF_CACHE", "").lower() in ("1", "true", "yes"):
            raise NotCached("")
        settings = CacheSettings.from_environment(environ)
        self.must_hit = settings.require_hit
        if not settings.enabled:
            raise NotCached("")
        real = Path(self.compiler.real)
        notes = settings.local_dir / "launcher"
        request = understand(self.compiler.arguments, environ, lambda: compiler_at(real, notes, environ))
        if request.retry:
            settings = replace(settings, retry_failures=True)
        self.compiler.request = request
        if settings.job is None and settings.verify == "digest" and settings.trust() is None:
            # Most of a hit's time would go into importing what only a miss needs.
            hit = LocalTier(settings.local_dir, max_bytes=settings.local_max_bytes).get(request.parts)
            if hit is not None:
                self._put_down(request, hit.neff, hit.outputs)
                return 0
        return self._through_cache(settings, request)

    def _through_cache(self, settings: CacheSettings, request: Request) -> int:
        from cache_server.cache import NeffCache

        _log_like_us()
        self.compiler.signals = Signals()
        cache = NeffCache.open(settings=settings, progress=_Progress())
        result = cache.get_or_compile(request.parts, self.compiler, label=request.label)
        cache.close_job()
        if not self.compiler.ran:
            self._put_down(request, result.neff, result.outputs)
        return 0

    def _put_down(self, request: Request, neff: bytes, outputs: Mapping[str, bytes]) -> None:
        if missing := lacks(request.call, outputs):
            raise NotCached(f"the cache has the NEFF, but not the file of `{missing.partition('#')[0]}`")
        put_down(request.call, neff, outputs)

    def end_with(self, failure: CompileFailure) -> int:
        """The status of a compile that failed, here or elsewhere. Here it has said itself why."""
        code = 1 if failure.exit_code is None else failure.exit_code
        if not self.compiler.ran:
            say(str(failure))
            if failure.hint:
                say(failure.hint)
        if code < 0:
            die_of(-code)
        return code

    def go_on(self, why: str) -> int:
        """What a cache that does not work leaves to do: nothing if the compile is done, else all of it."""
        if self.compiler.succeeded:
            say(f"not kept in the cache: {why}")
            return 0
        say(f"compiling without the cache: {why}")
        return self.become_real()

    def become_real(self) -> NoReturn:
        """Replaces this process by the real compiler: same process, streams, directory, signals."""
        self.compiler.become()


class RealCompiler:
    """The real compiler and this caller's command for it; calling it compiles."""

    def __init__(self, real: str, arguments: Sequence[str]) -> None:
        self.real = real
        self.arguments = list(arguments)
        self.request: Request | None = None
        self.signals: Signals | None = None
        self.ran = False
        self.succeeded = False

    def __call__(self) -> Built:
        """Raises CompileFailure for a status other than 0, NotKept for a result that is none."""
        from cache_server.launcher.child import run_compiler
        from cache_server.launcher.files import named_files, states
        from cache_server.launcher.verdict import judge

        assert self.request is not None
        assert self.signals is not None
        call = self.request.call
        before = states(named_files(call))
        self.ran, self.succeeded = True, False
        status, said = run_compiler([self.real, *self.arguments], self.signals, stdin=self.request.stdin)
        if status != 0:
            raise judge(status, said)
        self.succeeded = True
        return take_up(call, before)

    def become(self) -> NoReturn:
        sys.stdout.flush()
        sys.stderr.flush()
        if self.request is not None and self.request.stdin is not None:
            _give_back(self.request.stdin)
        _reset_signals()
        try:
            os.execv(self.real, [self.real, *self.arguments])  # noqa: S606 - no shell is wanted
        except OSError as error:
            say(f"{self.real} cannot be run: {error.strerror}")
            os._exit(126)


class _Progress:
    """Tells people of a long wait, not too often."""

    def __init__(self) -> None:
        self._next = _FIRST_WORD

    def __call__(self, waiting: Waiting) -> None:
        if waiting.waited_seconds < self._next:
            return
        self._next = waiting.waited_seconds + _NEXT_WORD
        what = "a compile slot, taken by" if waiting.for_slot else "the compile of"
        say(
            f"{waiting.label}: waiting for {what} {waiting.owner} ({waiting.phase}) since "
            f"{waiting.waited_seconds:.0f} s; compiling here in {waiting.gives_up_in:.0f} s if it does not end"
        )


def _log_like_us() -> None:
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("neuron-env launcher: %(message)s"))
    logging.getLogger("neuron_env").addHandler(handler)


def _give_back(stdin: bytes) -> None:
    """Makes standard input hold again what was read from it."""
    import tempfile

    with tempfile.TemporaryFile() as file:
        file.write(stdin)
        file.seek(0)
        os.dup2(file.fileno(), 0)


def _reset_signals() -> None:
    """What Python ignores, and an exec would keep ignored."""
    import signal

    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
