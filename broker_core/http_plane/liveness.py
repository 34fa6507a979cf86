"""The health check of a container: `python -m penstock.broker_core.http_plane.liveness PORT` asks for /health/live.

With and without `http_tls`. The certificate, which names the broker's host, is not verified.
"""

from __future__ import annotations

import http.client
import ssl
import sys

TIMEOUT_S = 2.0  # of each scheme: the container's limit is 5 seconds


def is_live(port: int) -> bool:
    context = ssl._create_unverified_context()
    for connection in (
        http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S),
        http.client.HTTPSConnection("127.0.0.1", port, timeout=TIMEOUT_S, context=context),
    ):
        try:
            connection.request("GET", "/health/live")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):  # the other scheme, or no broker
            continue
        finally:
            connection.close()
    return False


if __name__ == "__main__":
    sys.exit(not is_live(int(sys.argv[1])))
