"""A process that stands before a server on this host and makes the network bad, as lines on stdin tell it.

A line is a fault and how many answers (or connections) it befalls, -1 for all: `stall -1`, `status:503 2`, `none 0`.
"""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import sys
import threading
import time


class Fault:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kind, self._left = "none", 0

    def become(self, kind: str, count: int) -> None:
        with self._lock:
            self._kind, self._left = kind, count

    def peek(self) -> str:
        with self._lock:
            return self._kind if self._left else "none"

    def take(self) -> str:
        with self._lock:
            if not self._left:
                return "none"
            self._left -= 1 if self._left > 0 else 0
            return self._kind


def end(*sockets: socket.socket) -> None:
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()


def reset(near: socket.socket) -> None:
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    near.close()


def serve(near: socket.socket, port: int, fault: Fault) -> None:
    try:
        far = socket.create_connection(("127.0.0.1", port))
    except OSError:
        return end(near)
    threading.Thread(target=answers, args=(far, near, fault), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := near.recv(65536):
            kind = fault.peek()
            if kind == "reset":
                fault.take()
                reset(near)
                break
            if kind.startswith("status:"):
                fault.take()
                code = kind.partition(":")[2]
                near.sendall(f"HTTP/1.1 {code} Fault\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                break
            far.sendall(data)
    return end(near, far)


def beginning_of_body(far: socket.socket, head: bytes, body: bytes) -> bytes:
    """The body may come in a piece of its own, and there may be none; two bytes are what can be cut in half."""
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    wanted = min(2, int(length[1])) if length else 0
    more = b""
    while len(body) + len(more) < wanted and (piece := far.recv(1 << 20)):
        more += piece
    return more


def answers(far: socket.socket, near: socket.socket, fault: Fault) -> None:
    with contextlib.suppress(OSError):
        while data := far.recv(1 << 20):
            kind = fault.take() if data.startswith(b"HTTP/1.1") else "none"
            head = data.find(b"\r\n\r\n") + 4
            if kind == "stall":
                time.sleep(60)
                break
            if kind.startswith("delay:"):
                time.sleep(float(kind.partition(":")[2]))
            if kind == "lose":
                break
            if kind == "headers":
                near.sendall(data[:head])
                break
            if kind in ("truncate", "flip"):
                data += beginning_of_body(far, data[:head], data[head:])
            if kind == "truncate":
                near.sendall(data[: head + (len(data) - head) // 2])
                break
            if kind == "flip" and head < len(data):
                middle = head + (len(data) - head) // 2
                data = data[:middle] + bytes([data[middle] ^ 16]) + data[middle + 1 :]
            near.sendall(data)
    end(far, near)


def accept(listener: socket.socket, port: int, fault: Fault) -> None:
    while True:
        near, _ = listener.accept()
        threading.Thread(target=serve, args=(near, port, fault), daemon=True).start()


def main(port: int) -> None:
    fault = Fault()
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    threading.Thread(target=accept, args=(listener, port, fault), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for line in sys.stdin:
        kind, count = line.split()
        fault.become(kind, int(count))
        print("ok", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
