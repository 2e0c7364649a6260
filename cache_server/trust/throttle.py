"""A limit on failed attempts, one bucket a peer. Pure: the clock is handed in."""

from __future__ import annotations

from collections import OrderedDict

_PEERS = 10_000  # remembered at once; the one that failed longest ago is forgotten first


class FailureLimit:
    """Lets each peer fail `burst` times at once, and once every `seconds` after that. For one thread."""

    def __init__(self, burst: int = 20, seconds: float = 3.0) -> None:
        self._burst = burst
        self._seconds = seconds
        self._peers: OrderedDict[str, tuple[float, float]] = OrderedDict()  # failures not forgiven yet, as of when

    def wait(self, peer: str, now: float) -> float:
        """Seconds until the peer may try again; 0 if it may now."""
        failures = self._failures(peer, now)
        return max(0.0, (failures - self._burst + 1) * self._seconds)

    def failed(self, peer: str, now: float) -> None:
        """Remembers one failure."""
        self._peers[peer] = (min(self._failures(peer, now), self._burst - 1) + 1, now)
        self._peers.move_to_end(peer)
        while len(self._peers) > _PEERS:
            self._peers.popitem(last=False)

    def _failures(self, peer: str, now: float) -> float:
        failures, at = self._peers.get(peer, (0.0, now))
        return max(0.0, failures - (now - at) / self._seconds)
