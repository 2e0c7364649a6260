"""Run by the shim as `python -I -S __main__.py PACKAGES REAL ARGUMENTS...`, which imports nothing by itself."""

import os
import sys

packages, real, *arguments = sys.argv[1:]
sys.path += packages.split(os.pathsep)
try:
    from cache_server.launcher.run import main
except Exception as error:  # noqa: BLE001 - whatever is wrong here, the compile goes on
    sys.stderr.write(f"neuron-env launcher: cannot be loaded, so nothing is cached: {error}\n")
    os.execv(real, [real, *arguments])  # noqa: S606 - no shell is wanted
sys.exit(main(real, arguments))
