"""From a program to its NEFF: the cache's if anybody has compiled it, else compiled here, once."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from typing import Protocol

from cache_server import CacheResult, KeyParts, NeffCache
from neuron_runtime.compiler.options import CompileOptions, OptionsError
from neuron_runtime.compiler.version import COMPILER_NAME, COMPILER_VERSION
from neuron_runtime.compiler.warm import WarmCompiler


class StableHlo(Protocol):
    """Anything that is lowered: a program, a graph, an operator."""

    @property
    def stablehlo(self) -> bytes: ...


def compile_options(
    target: str,
    lnc: int,
    opt_level: int | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    default_level: int = 2,
) -> CompileOptions:
    """What TorchNeuron passes to the compiler, then `NEURON_CC_FLAGS`.

    The level is `opt_level`, else `NEURON_COMPILER_OPT_LEVEL` (such as `-O1`), else `default_level`: 2 for a whole
    graph, 1 in eager mode. Raises OptionsError.
    """
    environ = os.environ if environ is None else environ
    chosen = environ.get("NEURON_COMPILER_OPT_LEVEL") if opt_level is None else f"-O{opt_level}"
    level = chosen or f"-O{default_level}"
    fixed = ["--target", target, "--lnc", str(lnc), level, "--model-type", "transformer", "--auto-cast=none"]
    return CompileOptions.parse(fixed + _words(environ.get("NEURON_CC_FLAGS", "")))


class NeffBuilder:
    """Compiles programs through a cache. `compiler` is started when something has to be compiled."""

    def __init__(self, cache: NeffCache, compiler: WarmCompiler) -> None:
        self.cache = cache
        self.compiler = compiler

    def key_parts(self, program: StableHlo, options: CompileOptions) -> KeyParts:
        """What decides the program's NEFF."""
        return KeyParts.of(
            ir=program.stablehlo,
            compiler=COMPILER_NAME,
            compiler_version=COMPILER_VERSION,
            flags=options.flags,
            target=options.target,
            lnc=options.lnc,
        )

    def build(self, program: StableHlo, options: CompileOptions, *, label: str = "graph") -> CacheResult:
        """The program's NEFF and how it was come by. Raises CompileFailure."""
        return self.cache.get_or_compile(
            self.key_parts(program, options),
            lambda: self.compiler.compile(program.stablehlo, options, name=label).neff,
            label=label,
        )


def _words(flags: str) -> list[str]:
    try:
        return shlex.split(flags)
    except ValueError as error:
        raise OptionsError(f"NEURON_CC_FLAGS cannot be split into words: {error}: `{flags}`") from error
