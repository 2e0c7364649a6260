"""Strict, bounded reading of the small JSON documents that other hosts wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn


def parse_object(data: bytes, *, limit: int) -> Fields:
    """Reads one JSON object of at most `limit` bytes. Raises ValueError on anything else."""
    if len(data) > limit:
        raise ValueError(f"longer than {limit} bytes")
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return Fields.of(value, "the document")


def encode_object(value: Mapping[str, Any]) -> bytes:
    """Writes JSON for programs and people: sorted, one line, equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"


class Fields:
    """A JSON object whose fields are taken out by type; every error names the field."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def of(cls, value: Any, name: str) -> Fields:
        if not isinstance(value, dict):
            raise ValueError(f"{name} is not an object")
        return cls(value)

    def text(self, name: str, *, limit: int, default: str | None = None) -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str) or len(value) > limit:
            raise ValueError(f"{name} is not a text of at most {limit} characters")
        return value

    def integer(self, name: str, *, low: int, high: int) -> int:
        value = self._values.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"{name} is not an integer from {low} to {high}")
        return value

    def number(self, name: str, *, low: float, high: float) -> float:
        value = self._values.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"{name} is not a number")
        if not math.isfinite(value) or not low <= value <= high:
            raise ValueError(f"{name} is not a number from {low} to {high}")
        return float(value)

    def texts(self, name: str, *, count: int, limit: int) -> tuple[str, ...]:
        value = self._values.get(name)
        if not isinstance(value, list) or len(value) > count:
            raise ValueError(f"{name} is not a list of at most {count} texts")
        if any(not isinstance(item, str) or len(item) > limit for item in value):
            raise ValueError(f"{name} holds something other than texts of at most {limit} characters")
        return tuple(value)

    def object(self, name: str) -> Fields:
        return Fields.of(self._values.get(name), name)

    def optional_object(self, name: str) -> Fields | None:
        return None if self._values.get(name) is None else self.object(name)

    def items(self) -> list[tuple[str, Any]]:
        return list(self._values.items())

    def raw(self) -> dict[str, Any]:
        return dict(self._values)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
