"""Where recipes come from: the cache, or else the process that lowers, once for all who share the cache."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from torch_neuronx.eager import arguments as plain
from torch_neuronx.eager.arguments import Argument
from torch_neuronx.eager.recipe import OnHost, Recipe, decode, encode
from torch_neuronx.worker.version import lowering_version

if TYPE_CHECKING:
    from cache_server import KeyParts, NeffCache
    from torch_neuronx.worker.worker import LoweringWorker

log = logging.getLogger("torch_neuronx")

COMPILER = "torch-neuronx-lowering"


class _NotLastingError(Exception):
    """A recipe that is good for this process alone."""

    def __init__(self, recipe: bytes) -> None:
        super().__init__()
        self.recipe = recipe


class Recipes:
    """Recipes are entries of the NEFF cache like any other: found on this host or in the shared tier, made once.

    `target` and `lnc` are those of the NEFFs that the recipes are for.
    """

    def __init__(self, cache: NeffCache, worker: LoweringWorker, target: str, lnc: int) -> None:
        self._cache = cache
        self._worker = worker
        self._target = target
        self._lnc = lnc

    def get(
        self, op: torch._ops.OpOverload, arguments: Sequence[Argument], *, label: str, anew: bool = False
    ) -> Recipe | OnHost:
        """The recipe of a call; `anew`: what the cache has of it is no good.

        Raises CompileFailure when it has to be lowered and the process that does it fails.
        """
        request = request_for(op, arguments)
        parts = self._parts(request)
        results = len(op._schema.returns)
        if not anew:
            try:
                return decode(self._find(parts, request, label), arguments, results)
            except ValueError as error:
                log.warning("what the cache has of %s is not used: %s", label, error)
        begun = time.monotonic()
        made, lasting = self._lower(request)
        if lasting:
            self._cache.local.put(parts, made, time.monotonic() - begun)
        return decode(made, arguments, results)

    def _find(self, parts: KeyParts, request: Mapping[str, Any], label: str) -> bytes:
        if self._cache.settings.require_hit:
            # What this setting forbids is to compile; who prefetched NEFFs alone may still lower.
            hit = self._cache.get(parts)
            return self._lower(request)[0] if hit is None else hit.neff

        def make() -> bytes:
            made, lasting = self._lower(request)
            if not lasting:
                raise _NotLastingError(made)
            return made

        try:
            return self._cache.get_or_compile(parts, make, label=f"plan of {label}").neff
        except _NotLastingError as found:
            return found.recipe

    def _lower(self, request: Mapping[str, Any]) -> tuple[bytes, bool]:
        """A recipe's bytes, and whether others may have them."""
        reply, made = self._worker.lower_call(request)
        same = reply["version"] == lowering_version()
        if not same:
            log.warning("torch_neuronx has changed since this program began: restart it, for plans to be kept again")
        return made, same and reply["lasting"]

    def _parts(self, request: Mapping[str, Any]) -> KeyParts:
        from cache_server import KeyParts

        signature = json.dumps(request, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(signature).hexdigest()
        return KeyParts(digest, COMPILER, lowering_version(), (), self._target, self._lnc)


def request_for(op: torch._ops.OpOverload, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Everything about a call that lowering may look at."""
    return {
        "name": op._schema.name,
        "overload": op._schema.overload_name,
        "arguments": plain.to_json(arguments),
        "default_dtype": plain.dtype_to_text(torch.get_default_dtype()),
    }


def answer_call(request: Mapping[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
    """The worker's answer to `request_for`: whether the recipe is for keeping, and its bytes."""
    from torch_neuronx.eager.lower import lower_call

    del payload
    torch.set_default_dtype(plain.dtype_from_text(request["default_dtype"]))
    op = overload(request["name"], request["overload"])
    recipe = lower_call(op, plain.from_json(request["arguments"]))
    return {"lasting": not isinstance(recipe, OnHost) or recipe.lasting}, encode(recipe)


def overload(name: str, overload: str) -> torch._ops.OpOverload:
    """The operator of a schema's name, such as `aten::add` and `Tensor`."""
    namespace, _, plain_name = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), plain_name)
    found: torch._ops.OpOverload = getattr(packet, overload or "default")
    return found
