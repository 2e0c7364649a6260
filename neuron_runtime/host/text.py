"""A report as people read it: lines of text, and Markdown to paste."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from neuron_runtime.host.packages import FROM_AN_INDEX

# Filesystems that hosts share: there the options decide whether locks and reads can be relied on.
_SHARED = ("nfs", "lustre", "fuse", "cifs", "smb", "ceph", "9p", "virtiofs", "gpfs", "beegfs")
_DEVICES = len("neuron_ls") + 2
_YES_NO = {True: "yes", False: "no", None: "unknown"}


def report_lines(document: dict[str, Any]) -> list[str]:
    """The document of `HostReport.to_json`, redacted or not, as lines."""
    lines = [f"verdict: {document['verdict']}", f"simulated: {_YES_NO[document['simulated']]}"]
    missing: dict[str, str] = document["not_found"]
    for name, section in document["sections"].items():
        lines += ["", name]
        if section is None:
            lines.append(f"  not found: {missing.get(name, 'no reason is known')}")
        else:
            render = _RENDERERS.get(name, _facts)
            lines += [f"  {line}" for line in render(section, missing, name)] or ["  none"]
    return lines


def report_markdown(document: dict[str, Any]) -> str:
    """A heading, the verdict, and the text in a fence that nothing inside can close."""
    text = "\n".join(report_lines(document)[3:])
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    fence = fence if len(fence) > 3 else "```"
    verdict = re.sub(r"([\\`*_<>|])", r"\\\1", document["verdict"])
    return (
        f"### neuron-env collect\n\n- **verdict**: {verdict}\n- **simulated**: {_YES_NO[document['simulated']]}\n\n"
        f"<details><summary>Details</summary>\n\n{fence}text\n{text}\n{fence}\n\n</details>\n"
    )


def _facts(section: dict[str, Any], missing: dict[str, str], name: str) -> Iterator[str]:
    width = max(map(len, [*section, *(["neuron_ls"] if name == "devices" else [])]), default=0) + 2
    for fact, value in section.items():
        if value is None:
            reason = missing.get(f"{name}.{fact}")
            shown = f"not found: {reason}" if reason else "unknown"
        else:
            shown = _value(fact, value)
        yield f"{fact.ljust(width)}{shown}"


def _packages(section: dict[str, Any], missing: dict[str, str], name: str) -> Iterator[str]:
    width = max(map(len, section)) + 2
    usual = Counter(about["location"] for about in section.values()).most_common(1)[0][0]
    yield f"in {usual}"
    for package, about in section.items():
        build = f" ({about['build']})" if about.get("build") else ""
        place = f", in {about['location']}" if about["location"] != usual else ""
        origin = "" if about["origin"] == FROM_AN_INDEX else f", from {about['origin']}"
        yield f"{package.ljust(width)}{about['version']}{build}{place}{origin}"
        for copy in about["hidden_copies"]:
            yield f"{' ' * width}hides {copy['version']} in {copy['location']}"


def _devices(section: dict[str, Any], missing: dict[str, str], name: str) -> Iterator[str]:
    lists = ("sysfs", "neuron_ls")
    yield from _facts({key: value for key, value in section.items() if key not in lists}, missing, name)
    for key in lists:
        if not section[key]:
            yield f"{key.ljust(_DEVICES)}not found: {missing.get(f'{name}.{key}', 'it lists none')}"
    for device in section["sysfs"] or []:
        facts = f"{device['device_name']}, {device['core_count']} cores"
        yield f"{'sysfs'.ljust(_DEVICES)}device {device['neuron_device']}: {facts}"
    for device in section["neuron_ls"] or []:
        memory = device["memory_size"]
        size = f", {memory / 2**30:g} GiB" if isinstance(memory, int) else ""
        yield (
            f"{'neuron_ls'.ljust(_DEVICES)}device {device['neuron_device']}: {device['nc_count']} cores at LNC "
            f"{device['logical_neuroncore_config']}{size}, {device['bdf']}"
        )
        for process in device["processes"]:
            yield f"{'':{_DEVICES}}used by {process['pid']}: {process['command']}"


def _caches(section: dict[str, Any], missing: dict[str, str], name: str) -> Iterator[str]:
    width = max(map(len, section)) + 2
    for cache, about in section.items():
        setting = f" [{about['setting']}]" if about["setting"] else ""
        yield f"{cache.ljust(width)}{about['place']}{setting}: {_cache(about)}"


def _cache(about: dict[str, Any]) -> str:
    if about["kind"] != "directory":
        return "switched off" if about["kind"] == "off" else "not looked at"
    on = f"on {about['filesystem'] or 'an unknown filesystem'}"
    if (about["filesystem"] or "").startswith(_SHARED):
        on += f" ({','.join(about['mount_options'])})"
    lost = ", lost with a reboot or the container" if about["volatile"] else ""
    if about["exists"] is None:
        return f"not looked into, {on}: {about['reason']}"
    if not about["exists"]:
        return f"not there, {on}{lost}"
    more = "" if about["complete"] else " and more"
    return f"{about['files']} files, {_size(about['bytes'])}{more}, mode {about['mode']}, {on}{lost}"


def _value(fact: str, value: object) -> str:
    if fact.endswith("_bytes") and isinstance(value, int):
        return _size(value)
    if isinstance(value, bool):
        return _YES_NO[value]
    if isinstance(value, list):
        return ", ".join(_value("", item) for item in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_value(key, item)}" for key, item in value.items() if item is not None) or "none"
    return str(value)


def _size(size: int) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024  # type: ignore[assignment]
    return f"{size:.4g} TiB"


_RENDERERS = {"packages": _packages, "devices": _devices, "caches": _caches}
