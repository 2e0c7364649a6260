"""The report of `neuron-env recompiles`: from recorded events to one document, to text, to an HTML page."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def read_events(directory: Path) -> list[dict[str, Any]]:
    """All processes' events; a last line that a killed process did not finish is left out. Raises OSError."""
    events = []
    for path in sorted(directory.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            try:
                events.append(json.loads(line))
            except ValueError:
                continue
    return events


def report(command: Sequence[str], exit_status: int, events: Iterable[Mapping[str, Any]]) -> Document:
    """Every function that Dynamo traced, each recompile with the guards that failed, breaks, graphs, fallbacks."""
    frames: list[Document] = []
    recompiles: list[Document] = []
    breaks: list[Document] = []
    graphs: list[Document] = []
    fallbacks: list[Document] = []
    device: dict[str, int] = {}
    host: dict[str, int] = {}
    pids = set()
    for event in events:
        kind = event["event"]
        entry = {name: value for name, value in event.items() if name != "event"}
        pids.add(event["pid"])
        if kind == "frame":
            frames.append(entry)
            if entry["recompile_reason"]:
                recompiles.append(entry)
        elif kind == "operators":
            for total, more in ((device, event["device"]), (host, event["host"])):
                for name, count in more.items():
                    total[name] = total.get(name, 0) + count
        else:
            {"graph_break": breaks, "graph": graphs, "fallback": fallbacks}[kind].append(entry)
    return {
        "command": list(command),
        "exit_status": exit_status,
        "processes": len(pids),
        "frames": frames,
        "recompiles": recompiles,
        "graph_breaks": breaks,
        "graphs": graphs,
        "fallbacks": fallbacks,
        "device_operators": device,
        "host_operators": host,
    }


Table = tuple[str, tuple[str, ...], list[tuple[object, ...]]]


def tables(document: Document) -> Iterator[Table]:
    """Title, headings and rows of each part that has something to show."""
    parts: list[Table] = [
        (
            "Recompiles",
            ("compile", "function", "place", "why"),
            [(f["compile_id"], f["function"], f["place"], f["recompile_reason"]) for f in document["recompiles"]],
        ),
        (
            "Graph breaks",
            ("place", "reason"),
            [(b["place"] or "-", b["reason"]) for b in document["graph_breaks"]],
        ),
        (
            "Fallbacks of graphs",
            ("graph", "runs", "reason"),
            [(f["graph"], f["where"], f["reason"]) for f in document["fallbacks"]],
        ),
        (
            "Operators on the host",
            ("operator", "times"),
            sorted(document["host_operators"].items(), key=lambda item: -int(item[1])),
        ),
        (
            "Functions traced",
            ("compile", "function", "place", "seconds", "failure"),
            [
                (f["compile_id"], f["function"], f["place"], _seconds(f["seconds"]), _first_line(f["failure"]))
                for f in document["frames"]
            ],
        ),
        (
            "Graphs on the device",
            ("graph", "nodes", "lowering ms", "compile or load ms"),
            [
                (
                    f"{g['graph_id']} {g['graph_name']}",
                    g["graph_node_count"],
                    round(g["torch_neuronx_lower_us"] / 1e3),
                    round(g["torch_neuronx_compile_us"] / 1e3),
                )
                for g in document["graphs"]
            ],
        ),
    ]
    return (part for part in parts if part[2])


def summary(document: Document) -> str:
    names = ("graphs", "recompiles", "graph_breaks", "fallbacks", "host_operators")
    counts = ", ".join(f"{len(document[name])} {name.replace('_', ' ')}" for name in names)
    processes = document["processes"]
    return f"{counts}; {processes} process{'es' if processes != 1 else ''}, exit status {document['exit_status']}"


def page(document: Document) -> str:
    """A page by itself: no scripts, nothing to fetch."""
    body = [f"<h1>{html.escape(' '.join(document['command']))}</h1>", f"<p>{html.escape(summary(document))}</p>"]
    for title, columns, rows in tables(document):
        head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
        lines = ("".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) for row in rows)
        body.append(f"<h2>{html.escape(title)}</h2><table><tr>{head}</tr>")
        body += [f"<tr>{line}</tr>" for line in lines]
        body.append("</table>")
    style = (
        "body{font:14px/1.4 sans-serif;margin:2em}table{border-collapse:collapse}"
        "th,td{border:1px solid #ccc;padding:.3em .6em;text-align:left;vertical-align:top;white-space:pre-wrap}"
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Recompiles</title>'
        f"<style>{style}</style>\n" + "\n".join(body) + "\n</html>\n"
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _first_line(text: str | None) -> str:
    return (text or "-").strip().partition("\n")[0]
