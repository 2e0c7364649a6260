"""One line of JSON for every change of state: who did what to which key, and how it ended."""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cache_server.errors import CacheError

log = logging.getLogger("neuron_env.cache.audit")


class AuditLog:
    """Writes to the logger `neuron_env.cache.audit`, and to a file of its own if there is one.

    A change is never undone because it could not be written down; the failure goes to the service's log.
    """

    def __init__(self, path: Path | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Raises CacheError if the file cannot be opened. It is 0600, appended to, and opened anew once moved away."""
        self._clock = clock
        self._file: logging.handlers.WatchedFileHandler | None = None
        if path is not None:
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._file = _PrivateFile(path, encoding="utf-8")
            except OSError as error:
                raise CacheError(f"the audit log {path} cannot be written: {error.strerror}") from None

    def record(
        self,
        action: str,
        *,
        principal: str,
        result: str,
        request_id: str | None = None,
        namespace: str | None = None,
        key: str | None = None,
        digest: str | None = None,
        **details: Any,
    ) -> None:
        """Writes one line. `result` is `ok`, or the slug of the error; None fields are left out."""
        now = self._clock()
        fields = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z",
            "action": action,
            "principal": principal,
            "result": result,
            "request_id": request_id,
            "namespace": namespace,
            "key": key,
            "digest": digest,
            **details,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        # ASCII, so that nothing a client sent can pass for the end of a line.
        line = json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
        log.info("%s: %s", action, result, extra={"fields": {k: v for k, v in fields.items() if k != "time"}})
        if self._file is not None:
            self._file.handle(log.makeRecord(log.name, logging.INFO, __file__, 0, line, (), None))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class _PrivateFile(logging.handlers.WatchedFileHandler):
    def _open(self) -> Any:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return os.fdopen(descriptor, "a", encoding=self.encoding)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  logging's name
        logging.getLogger("neuron_env.cache").error("the audit log %s cannot be written", self.baseFilename)
