"""Findings as SARIF 2.1.0, which code hosts show beside the lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .finding import Finding, Rule

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_log(findings: Sequence[Finding], rules: Iterable[Rule], version: str) -> dict[str, Any]:
    """One run. Columns are counted in Unicode code points."""
    known = list(rules)
    numbers = {rule.id: at for at, rule in enumerate(known)}
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "neuron-env preflight",
                        "version": version,
                        "rules": [
                            {
                                "id": rule.id,
                                "shortDescription": {"text": rule.why},
                                "defaultConfiguration": {"level": rule.level.value},
                            }
                            for rule in known
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_result(it, numbers[it.rule.id]) for it in findings],
            }
        ],
    }


def _result(it: Finding, number: int) -> dict[str, Any]:
    text = f"{it.what}: {it.rule.why}." + (f" Instead: {it.instead}." if it.instead else "")
    return {
        "ruleId": it.rule.id,
        "ruleIndex": number,
        "level": it.level.value,
        "message": {"text": text},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(it.path)},
                    "region": {
                        "startLine": it.line,
                        "startColumn": it.column,
                        "endLine": it.end_line,
                        "endColumn": it.end_column,
                    },
                }
            }
        ],
    }


def _uri(path: str) -> str:
    place = Path(path)
    return place.as_uri() if place.is_absolute() else quote(place.as_posix())
