"""moto's S3 server, each request of which is one step, as on Amazon's: `python s3_server.py PORT`.

As it comes, its threads look at an object's condition first and write it later, so now and then two of them both win.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import run_simple

_APP = create_backend_app("s3")
_LOCK = threading.Lock()


def one_at_a_time(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    length = int(environ.get("CONTENT_LENGTH") or 0)
    # A client that is slow to send must not keep the others waiting.
    environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
    with _LOCK:
        return list(_APP(environ, start_response))


if __name__ == "__main__":
    run_simple("127.0.0.1", int(sys.argv[1]), one_at_a_time, threaded=True)
