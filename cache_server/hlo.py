"""What counts of a graph that comes as an HLO protobuf (`xla.HloModuleProto`)."""

from __future__ import annotations

from cache_server.wire import BYTES, VARINT, parts_of, pieces_without

# Field numbers of xla/service/hlo.proto. Wire types are checked too, so that other bytes are not taken for a module.
_MODULE = {
    1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: VARINT, 7: BYTES, 8: BYTES, 10: BYTES, 11: VARINT,
    12: BYTES, 13: BYTES, 14: BYTES, 15: BYTES, 16: VARINT, 17: BYTES, 18: BYTES, 19: BYTES,
}  # fmt: skip
_COMPUTATION = {1: BYTES, 2: BYTES, 4: BYTES, 5: VARINT, 6: VARINT, 7: VARINT, 8: BYTES}
_COMPUTATIONS, _INSTRUCTIONS = 3, 2
# The module's name and number (which count what the process traced before), profiles, and the table of stack frames.
_MODULE_LEAVES_OUT = frozenset({1, 5, 13, 17})
# `metadata` (operator names, source files and lines), and what traces a value back to before optimisation.
_INSTRUCTION_LEAVES_OUT = frozenset({7, 82, 88})


def essence_of_hlo(data: bytes) -> list[bytes] | None:
    """The pieces of the module that decide what is compiled, in their order; None for what is no such module.

    Left out is what says where a graph came from. Names of instructions stay: the compiler may name tensors by them.
    The pieces make no message again, since lengths would differ. A mark stands before each computation and instruction.
    """
    pieces: list[bytes] = []
    computations = 0
    try:
        for number, kind, start, content, end in parts_of(data, 0, len(data)):
            if _MODULE.get(number) != kind:
                return None
            if number == _COMPUTATIONS:
                computations += 1
                pieces.append(b"computation\0")
                if not _computation(data, content, end, pieces):
                    return None
            elif number not in _MODULE_LEAVES_OUT:
                pieces.append(data[start:end])
    except ValueError:
        return None
    return pieces if computations else None


def _computation(data: bytes, at: int, end: int, pieces: list[bytes]) -> bool:
    instructions = 0
    for number, kind, start, content, after in parts_of(data, at, end):
        if _COMPUTATION.get(number) != kind:
            return False
        if number != _INSTRUCTIONS:
            pieces.append(data[start:after])
            continue
        instructions += 1
        pieces.append(b"instruction\0")
        # One piece, so that it does not matter whether there was anything to leave out.
        pieces.append(b"".join(pieces_without(data, content, after, _INSTRUCTION_LEAVES_OUT)))
    return instructions > 0
