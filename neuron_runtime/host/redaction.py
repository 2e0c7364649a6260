"""Takes out of a document what its reader need not know: secrets always, names of people and accounts when asked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_NAMED = r"(?:token|secret|password|passwd|api[-_]?key|access[-_]?key)"

# A secret wherever it stands. The group, where there is one, is kept.
_SECRETS = (
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bnec_[0-9a-f]{16}_[0-9a-f]{64}\b"),
    re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|xox[abp])[_-][A-Za-z0-9_-]{16,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),
    re.compile(r"([a-z][a-z0-9+.-]*://)[^/\s@]+(?=@)", re.I),
    re.compile(r"(bearer\s+)\S+", re.I),
    re.compile(rf"(--?[\w-]*{_NAMED}(?![a-z])[\w-]*[=\s]\s*)[^\s&;,]+", re.I),
    re.compile(rf"(\b[\w-]*{_NAMED}(?![a-z])[\w-]*=)[^\s&;,]+", re.I),
    re.compile(r"([?&](?:X-Amz-[\w-]+|sig|signature)=)[^&\s]+", re.I),
)
_PEOPLE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<=arn:aws)([\w-]*:[\w-]*:[\w-]*:)\d{12}(?=:)"), r"\g<1>ACCOUNT"),
    (re.compile(r"(?<![\w.])\d{12}(?![\w.]|\.\d)|\b\d{12}(?=\.dkr\.ecr\.)"), "ACCOUNT"),
    (re.compile(r"\b(i|ami|vol|subnet|vpc|sg|eni)-(?:[0-9a-f]{17}|[0-9a-f]{8})\b"), r"\g<1>-ID"),
    (re.compile(r"\bip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}\b"), "ip-ADDRESS"),
    (re.compile(r"(?<![\w.])(?!127\.)(?:\d{1,3}\.){3}\d{1,3}(?=[:/\s,]|$)(?<!\.0)"), "ADDRESS"),
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "EMAIL"),
    (re.compile(r"/(home|Users)/[^/\s:]+"), r"/\g<1>/USER"),
)


def hide_secrets(document: Any) -> Any:
    """The document without tokens, keys and passwords, wherever they stand in a string."""
    return _map_strings(document, _without_secrets)


def redact(document: Any, home: str | None = None) -> Any:
    """Without secrets, account and instance ids, addresses and home directories; `home` becomes `~`."""
    return _map_strings(document, lambda text: _without_people(_without_secrets(text), home))


def _without_secrets(text: str) -> str:
    for pattern in _SECRETS:
        text = pattern.sub(lambda found: (found[1] if found.re.groups else "") + "(hidden)", text)
    return text


def _without_people(text: str, home: str | None) -> str:
    if home and home not in ("/", ""):
        text = re.sub(rf"{re.escape(home.rstrip('/'))}(?=/|$|[\s:'\",])", "~", text)
    for pattern, replacement in _PEOPLE:
        text = pattern.sub(replacement, text)
    return text


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_strings(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_map_strings(item, change) for item in value]
    return value
