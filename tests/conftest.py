from __future__ import annotations

import os
import signal

# A shell ignores SIGINT for what it runs in the background, and children inherit that: tests that interrupt one could
# not. With a handler here, a child starts with the default.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What the developer's configuration files say must not decide a test.
os.environ["NEURON_ENV_CONFIG"] = "none"
