"""`neuronx-cc` in front of the real one: the same command, its results through the cache.

The shim (`shim.py`) is a shell script on PATH: it finds the next `neuronx-cc`, and leaves everything but a compile
to it. A compile goes to `run.py`, in the interpreter that neuron-env is installed in. Whatever goes wrong here, the
real compiler runs instead.
"""
