"""Many processes on one host that all want to compile at once; each forked from one that has imported the cache."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from typing import Any

from cache_server import CacheSettings, KeyParts, NeffCache


def compile_once(config: dict[str, Any], number: int) -> None:
    running = Path(config["journal"])

    def compile_it() -> bytes:
        own = running / f"running-{os.getpid()}"
        own.touch()
        others = len(list(running.glob("running-*")))
        time.sleep(config["seconds"])
        own.rename(running / f"done-{os.getpid()}-{others}")
        return b"neff %d" % number

    settings = CacheSettings(None, Path(config["local"]), compile_slots=config["slots"])
    parts = KeyParts.of(ir=b"%d" % number, compiler="cc", compiler_version="2.0", flags=[], target="trn2", lnc=2)
    NeffCache(settings, None).get_or_compile(parts, compile_it)


def main(config: dict[str, Any]) -> int:
    for module in ("cache_server.flight", "filelock"):  # imported on first use: here once, instead of in every child
        import_module(module)
    children = []
    for number in range(config["processes"]):
        child = os.fork()
        if child == 0:
            try:
                compile_once(config, number)
            except BaseException:  # noqa: BLE001  a fork must not return into the parent's code
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
