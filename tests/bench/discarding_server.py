"""A Flight server that acknowledges each record batch as the broker does, and throws it away. Ends with its stdin."""

from __future__ import annotations

import json
import sys

from pyarrow import flight


class _Server(flight.FlightServerBase):
    def do_put(self, context, descriptor, reader, writer):  # type: ignore[no-untyped-def]
        messages = 0
        for batches, chunk in enumerate(reader, 1):
            messages += chunk.data.num_rows
            writer.write(json.dumps({"batches": batches, "messages": messages}).encode())


if __name__ == "__main__":
    server = _Server("grpc://127.0.0.1:0")
    print(f"grpc://127.0.0.1:{server.port}", flush=True)
    sys.stdin.read()
    server.shutdown()
