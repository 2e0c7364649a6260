"""The service's log: one line an event, as JSON for machines or as text for a person at a terminal."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import IO


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `time` (UTC), `level`, `logger`, `message`, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        value = {
            "time": _utc(record),
            "level": record.levelname.lower(),
            "logger": record.name.removeprefix("neuron_env."),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            value["traceback"] = self.formatException(record.exc_info)
        return json.dumps(value, ensure_ascii=False, default=str)


class TextFormatter(logging.Formatter):
    """A line for people; of a request's fields those that one looks for first."""

    def format(self, record: logging.LogRecord) -> str:
        fields = getattr(record, "fields", {})
        extra = ""
        if fields:
            seconds, size = fields.get("seconds"), fields.get("bytes")
            known = {name: fields.get(name) for name in ("namespace", "principal", "request_id")}
            extra = "".join(f" {name}={value}" for name, value in known.items() if value)
            if seconds is not None:
                extra = f" {seconds * 1000:.1f} ms, {size} bytes{extra}"
        text = f"{_utc(record)[11:23]} {record.levelname.lower():7} {record.getMessage()}{extra}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def set_up_logs(form: str, stream: IO[str] | None = None) -> None:
    """Sends every log of this process to `stream` (stderr), in the form `json` or `text`."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name in ("neuron_env", "neuron_env.cache", "neuron_env.cache.server", "neuron_env.cache.access"):
        logging.getLogger(name).setLevel(logging.INFO)


def _utc(record: logging.LogRecord) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{whole}.{int(record.msecs):03d}Z"
