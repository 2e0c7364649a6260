"""Compile a program to a NEFF, in this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import CompileOptions
from neuron_runtime.compiler.version import COMPILER_VERSION
from neuron_runtime.cpu import host_cpu
from neuron_runtime.neff import NativePart, NeffError, NeffManifest, write_neff
from neuron_runtime.xla import Executable, Xla, XlaError, XlaMissingError


@dataclass(frozen=True, slots=True)
class CompiledNeff:
    """A NEFF file's bytes, its manifest, the seconds the compile took, and what the caller should hear about."""

    neff: bytes
    manifest: NeffManifest
    seconds: float
    warnings: tuple[str, ...] = ()


def compile_neff(
    ir: bytes,
    options: CompileOptions | None = None,
    *,
    name: str = "model",
    native: bool = True,
    xla: Xla | None = None,
) -> CompiledNeff:
    """Compile StableHLO or HLO (`Xla.portable` lists the formats) to a NEFF for `options.target`.

    With `native` the NEFF also holds code for this host's CPU, which loads faster but whose bytes differ from
    compile to compile; without, equal programs, options and names give equal bytes. Raises CompileFailure, and
    ValueError for a name that no NEFF can have. XLA can also crash the process, or never return: `WarmCompiler` is
    for callers that must not.
    """
    check_name(name)
    start = time.perf_counter()
    options = options or CompileOptions()
    xla = xla or _process_xla()
    try:
        portable = xla.portable(ir)
        executable = xla.compile(portable, options.opt_level)
        code = executable.serialize() if native else None
        manifest = _manifest(executable, options, name, _describe(code, xla))
        neff = write_neff(manifest, portable, code)
    except XlaMissingError as error:
        raise CompileFailure(error.message, kind=FailureKind.ENVIRONMENT, hint=error.hint) from error
    except XlaError as error:
        kind = FailureKind.OUT_OF_MEMORY if error.status == "RESOURCE_EXHAUSTED" else FailureKind.COMPILER_ERROR
        raise CompileFailure(error.message, kind=kind, hint=error.hint) from error
    except NeffError as error:
        raise CompileFailure(
            f"the program does not fit a NEFF: {error.message}", kind=FailureKind.COMPILER_ERROR, hint=error.hint
        ) from error
    except MemoryError as error:
        raise CompileFailure("the compiler ran out of memory", kind=FailureKind.OUT_OF_MEMORY) from error
    return CompiledNeff(neff, manifest, time.perf_counter() - start, options.warnings)


def check_name(name: str) -> None:
    """ValueError unless a NEFF can be called `name`: printable, 1 to 255 bytes."""
    if not name or not name.isprintable() or len(name.encode(errors="replace")) > 255:
        raise ValueError(f"{name!r} is no name for a NEFF: it must be printable text of 1 to 255 bytes")


@cache
def _process_xla() -> Xla:
    return Xla()


def _describe(code: bytes | None, xla: Xla) -> NativePart | None:
    if code is None:
        return None
    cpu = host_cpu()
    return NativePart.describe(code, format=xla.native_format, arch=cpu.arch, cpu_features=cpu.features)


def _manifest(executable: Executable, options: CompileOptions, name: str, native: NativePart | None) -> NeffManifest:
    return NeffManifest(
        name=name,
        version=COMPILER_VERSION,
        target=options.target,
        lnc=options.lnc,
        opt_level=options.opt_level,
        inputs=executable.inputs,
        outputs=executable.outputs,
        aliases=executable.aliases,
        # XLA gives -1 where it has no estimate.
        flops=max(0, int(executable.flops)),
        bytes_accessed=max(0, int(executable.bytes_accessed)),
        temp_bytes=max(0, executable.temp_bytes),
        native=native,
    )
