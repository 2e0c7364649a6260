"""XLA on this host's CPU: the only package that touches jaxlib, whose Python API is private and moves.

jaxlib prints through C++ on file descriptor 2 and a bad program can crash it, so callers that must survive run
it in a process of their own. A process that also imports jax must not use `Executable.alias`: the two share
one process-wide switch for 64-bit types. Importing this package imports neither jaxlib nor NumPy.
"""

from neuron_runtime.cpu import CpuIdentity, host_cpu
from neuron_runtime.xla.client import Xla
from neuron_runtime.xla.errors import XlaError, XlaMissingError
from neuron_runtime.xla.executable import Executable
from neuron_runtime.xla.library import preload

__all__ = ["CpuIdentity", "Executable", "Xla", "XlaError", "XlaMissingError", "host_cpu", "preload"]
