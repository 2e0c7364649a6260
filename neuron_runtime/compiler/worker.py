"""The compile worker: a process that imports XLA once and compiles until its caller is gone.

`WarmCompiler` starts it; nobody else needs to.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from neuron_runtime.compiler.errors import CompileFailure, FailureKind
from neuron_runtime.compiler.options import CompileOptions, OptionsError
from neuron_runtime.compiler.serving import Serve, serve


def _compiler() -> Serve:
    from neuron_runtime.compiler.compile import compile_neff
    from neuron_runtime.xla import Xla, XlaError

    xla = Xla()
    try:
        xla.start()
    except XlaError as error:
        raise CompileFailure(error.message, kind=FailureKind.ENVIRONMENT, hint=error.hint) from error

    def answer(request: Mapping[str, Any], ir: bytes) -> tuple[dict[str, Any], bytes]:
        try:
            options = CompileOptions.from_json(request["options"])
        except OptionsError as error:
            raise CompileFailure(error.message, kind=FailureKind.COMPILER_ERROR, hint=error.hint) from error
        done = compile_neff(ir, options, name=request["name"], native=request["native"], xla=xla)
        reply = {
            "manifest": done.manifest.to_json(),
            "seconds": done.seconds,
            "warnings": list(done.warnings),
        }
        return reply, done.neff

    return answer


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1:], _compiler, name="the compiler"))
