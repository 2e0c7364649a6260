"""The line between an instance and the demo: events as JSON on standard output, life by standard input."""

from __future__ import annotations

import _thread
import json
import os
import sys
import threading
import time
from typing import Any

PATIENCE_SECONDS = 10.0


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def stand_by() -> None:
    """Ends this process as Ctrl-C would when the other end of standard input closes, however the demo went."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    sys.stdin.read()
    # What is being compiled is published first, so that no lease is left behind.
    _thread.interrupt_main()
    time.sleep(PATIENCE_SECONDS)
    os._exit(1)
