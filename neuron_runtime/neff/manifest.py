"""`manifest.json`: what a NEFF made here says about itself."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from neuron_runtime.tensors import TensorSpec

from .errors import NeffError
from .findings import shown

SCHEMA_VERSION = 1
PRODUCER = "neuron-env compiler (simulated)"

_MAX_TENSORS = 65_536
_MAX_RANK = 64
_MAX_NUMBER = 1 << 62
_MAX_FEATURES = 1024
_TEXT_LENGTH = 255
_TENSOR_NAME_LENGTH = 1024
_TARGET = re.compile(r"[a-z0-9][a-z0-9._-]{0,31}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class NativePart:
    """The native executable inside, and the machine it needs.

    `format` names the serialisation and the XLA it belongs to, `cpu_features` are sorted LLVM feature names,
    `size` is in bytes and `sha256` in hex: both of the member as it is stored.
    """

    format: str
    arch: str
    cpu_features: tuple[str, ...]
    sha256: str
    size: int

    def __post_init__(self) -> None:
        _check_text("native.format", self.format)
        _check_text("native.arch", self.arch)
        if len(self.cpu_features) > _MAX_FEATURES:
            _fail("native.cpu_features", f"more than {_MAX_FEATURES} features")
        for feature in self.cpu_features:
            _check_text("native.cpu_features", feature)
        if list(self.cpu_features) != sorted(set(self.cpu_features)):
            _fail("native.cpu_features", "the features are not sorted, or one appears twice")
        if not isinstance(self.sha256, str) or not _DIGEST.fullmatch(self.sha256):
            _fail("native.sha256", "not a SHA-256 in lower-case hex")
        _check_number("native.size", self.size)

    @classmethod
    def describe(
        cls,
        data: bytes,
        *,
        format: str,  # noqa: A002 - the field's own name
        cpu_features: Iterable[str],
        arch: str | None = None,
    ) -> NativePart:
        """The description of an executable built for this machine, or for `arch`."""
        return cls(
            format=format,
            arch=arch or platform.machine(),
            cpu_features=tuple(sorted(set(cpu_features))),
            sha256=hashlib.sha256(data).hexdigest(),
            size=len(data),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "format": self.format,
            "arch": self.arch,
            "cpu_features": list(self.cpu_features),
            "sha256": self.sha256,
            "size": self.size,
        }

    @classmethod
    def from_json(cls, data: Any) -> NativePart:
        fields = _fields("native", data, ("format", "arch", "cpu_features", "sha256", "size"))
        features = _items("native.cpu_features", fields["cpu_features"], _MAX_FEATURES)
        return cls(**{**fields, "cpu_features": tuple(features)})


@dataclass(frozen=True, slots=True, kw_only=True)
class NeffManifest:
    """What the runtime must know to load the NEFF, and people to know where it came from.

    `aliases` pairs (output index, input index) where the output may be written over the input. `flops` and
    `bytes_accessed` are the compiler's estimates for one execution, `temp_bytes` is its scratch memory; all
    three are 0 where it gave none. Raises NeffError (field `manifest.KEY`) for values that no NEFF may hold.
    """

    name: str
    version: str
    target: str
    lnc: int
    opt_level: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    aliases: tuple[tuple[int, int], ...] = ()
    flops: int = 0
    bytes_accessed: int = 0
    temp_bytes: int = 0
    native: NativePart | None = None
    producer: str = PRODUCER

    def __post_init__(self) -> None:
        _check_text("name", self.name)
        _check_text("version", self.version, 127)
        _check_text("producer", self.producer)
        # A simulated NEFF must never pass for one made for hardware.
        if not self.version.endswith("+sim"):
            _fail("version", f"`{shown(self.version)}` does not end in `+sim`")
        if "simulated" not in self.producer:
            _fail("producer", f"`{shown(self.producer)}` does not say `simulated`")
        if not isinstance(self.target, str) or not _TARGET.fullmatch(self.target):
            _fail("target", f"{_described(self.target)} is no target's name, such as `trn2`")
        _check_number("lnc", self.lnc)
        if self.lnc not in (1, 2):
            _fail("lnc", f"{self.lnc} is not 1 or 2")
        _check_number("opt_level", self.opt_level, 9)
        for key, specs in (("inputs", self.inputs), ("outputs", self.outputs)):
            _check_tensors(key, specs)
        for key in ("flops", "bytes_accessed", "temp_bytes"):
            _check_number(key, getattr(self, key))
        self._check_aliases()

    def _check_aliases(self) -> None:
        for pair in self.aliases:
            if len(pair) != 2:
                _fail("aliases", "an alias is a pair of output index and input index")
            for index, specs in zip(pair, (self.outputs, self.inputs), strict=True):
                _check_number("aliases", index, len(specs) - 1)
            if self.outputs[pair[0]].nbytes != self.inputs[pair[1]].nbytes:
                _fail("aliases", f"output {pair[0]} and input {pair[1]} differ in size")
        for side in (0, 1):
            if len({pair[side] for pair in self.aliases}) != len(self.aliases):
                _fail("aliases", "a tensor is aliased twice")
        if list(self.aliases) != sorted(self.aliases):
            _fail("aliases", "the pairs are not sorted")

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "producer": self.producer,
            "version": self.version,
            "name": self.name,
            "target": self.target,
            "lnc": self.lnc,
            "opt_level": self.opt_level,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "aliases": [list(pair) for pair in self.aliases],
            "flops": self.flops,
            "bytes_accessed": self.bytes_accessed,
            "temp_bytes": self.temp_bytes,
            "native": self.native.to_json() if self.native else None,
        }

    def dumps(self) -> bytes:
        """The one JSON form: sorted keys, no blanks, UTF-8. Equal manifests give equal bytes."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return text.encode()

    @classmethod
    def from_json(cls, data: Any) -> NeffManifest:
        """Raises NeffError for anything that is not a whole and valid manifest of this schema version."""
        version = data.get("schema_version") if isinstance(data, dict) else None
        if type(version) is not int or version != SCHEMA_VERSION:
            raise NeffError(
                "manifest.schema_version",
                f"the manifest has schema version {_described(version)}; this program reads {SCHEMA_VERSION}",
                hint="upgrade neuron-env, or compile the graph again",
            )
        keys = tuple(field.name for field in dataclasses.fields(cls))
        fields = _fields("", data, (*keys, "schema_version"))
        del fields["schema_version"]
        for key in ("inputs", "outputs"):
            fields[key] = _tensors(key, fields[key])
        pairs = _items("aliases", fields["aliases"], _MAX_TENSORS)
        fields["aliases"] = tuple(tuple(_items("aliases", pair, 2)) for pair in pairs)
        native = fields["native"]
        fields["native"] = None if native is None else NativePart.from_json(native)
        return cls(**fields)

    @classmethod
    def loads(cls, raw: bytes) -> NeffManifest:
        """Parse hostile bytes. The caller bounds their length. Raises NeffError and nothing else."""
        try:
            data = json.loads(raw.decode(), parse_constant=_refuse_constant, object_pairs_hook=_unique)
        except NeffError:
            raise
        except (ValueError, RecursionError) as error:
            raise NeffError("manifest.json", f"the manifest is no JSON: {shown(str(error))}") from error
        return cls.from_json(data)


def _tensors(key: str, data: Any) -> tuple[TensorSpec, ...]:
    specs = []
    for item in _items(key, data, _MAX_TENSORS):
        fields = _fields(key, item, ("name", "shape", "dtype"))
        for size in _items(key, fields["shape"], _MAX_RANK):
            _check_number(key, size)
        try:
            specs.append(TensorSpec.from_json(fields))
        except ValueError as error:
            _fail(key, shown(str(error), 200))
    return tuple(specs)


def _check_tensors(key: str, specs: tuple[TensorSpec, ...]) -> None:
    if len(specs) > _MAX_TENSORS:
        _fail(key, f"more than {_MAX_TENSORS} tensors")
    for spec in specs:
        _check_text(key, spec.name, _TENSOR_NAME_LENGTH)
        if len(spec.shape) > _MAX_RANK:
            _fail(key, f"tensor `{shown(spec.name)}` has more than {_MAX_RANK} dimensions")
        if spec.nbytes > _MAX_NUMBER:
            _fail(key, f"tensor `{shown(spec.name)}` is larger than any memory")
    if len({spec.name for spec in specs}) != len(specs):
        _fail(key, "two tensors have one name, and the runtime binds them by name")


def _check_text(key: str, value: Any, length: int = _TEXT_LENGTH) -> None:
    if not isinstance(value, str) or not value or not value.isprintable():
        _fail(key, f"{_described(value)} is no printable text")
    if len(value.encode()) > length:
        _fail(key, f"the text is longer than {length} bytes")


def _check_number(key: str, value: Any, most: int = _MAX_NUMBER) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        _fail(key, f"{_described(value)} is not a whole number from 0 to {most}")


def _items(key: str, data: Any, most: int) -> list[Any]:
    if not isinstance(data, list):
        _fail(key, f"a list is needed, not {type(data).__name__}")
    if len(data) > most:
        _fail(key, f"the list holds more than {most} items")
    return data


def _fields(key: str, data: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(data, dict):
        _fail(key, f"an object is needed, not {type(data).__name__}")
    for name in sorted(set(names) ^ data.keys()):
        _fail(f"{key}.{name}" if key else name, "the key is missing" if name in names else "the key is unknown")
    return dict(data)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        raise NeffError("manifest.json", "the manifest gives one key twice")
    return data


def _refuse_constant(text: str) -> NoReturn:
    raise NeffError("manifest.json", f"the manifest holds {text}, which is no JSON number")


def _described(value: Any) -> str:
    if isinstance(value, int) and abs(value) > _MAX_NUMBER:
        return shown(hex(value))
    # Containers are named, not shown: their text may be long, and deeper than it can be built.
    return shown(repr(value)) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _fail(key: str, problem: str) -> NoReturn:
    field = "manifest." + shown(key)
    raise NeffError(field, f"`{field}`: {problem}")
