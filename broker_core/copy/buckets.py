"""Object stores as `Store`: S3 and what speaks like it, Google Cloud Storage, Azure, by the library obstore.

Credentials and endpoints come from the environment, by the names that each cloud's own tools use (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, …), from files that they name, or from the machine's role: never from a setting.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from .. import DISTRIBUTION
from ..errors import InvalidRequest
from ..journal.disk import Buffer
from .stores import NoSuchObject, StoreError

KINDS = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")  # one with http:// means it
REQUEST_S = 60.0  # of one request, body included: 16 MiB at 300 KB/s
CONNECT_S = 10.0
PART_BYTES = 8 << 20  # of a large object: each part is one request
PARTS_AT_ONCE = 2
TEXT_MAX = 300  # characters of a store's answer in an error


class BucketStore:
    """Objects below a URL such as `s3://bucket/folder`."""

    def __init__(self, url: str) -> None:
        if url.partition("://")[0] not in KINDS:
            raise InvalidRequest(
                f"{url} is no URL of a store; begin with {'://, '.join(KINDS[:-1])}://, file:// or a folder's path"
            )
        try:
            import obstore  # late: a folder as a store needs none
        except ImportError:
            raise InvalidRequest(f"{url} needs the package obstore: pip install '{DISTRIBUTION}[broker]'") from None
        self.url = url
        self._obstore = obstore
        self._store: Any = None

    @property
    def _opened(self) -> Any:
        if self._store is None:
            from obstore.store import MemoryStore, from_url

            # The copier tries again itself, and says so. What is tried again in here is short.
            retry: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}
            options: Any = {"timeout": timedelta(seconds=REQUEST_S), "connect_timeout": timedelta(seconds=CONNECT_S)}
            if any(os.environ.get(name, "").startswith("http://") for name in ENDPOINTS):
                options["allow_http"] = True
            if self.url.startswith("memory://"):
                self._store = MemoryStore()
            else:
                self._store = from_url(self.url, client_options=options, retry_config=retry)
        return self._store

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """Put an object if there is none of that name.

        Its SHA-256 is signed (outside the GIL, 0.6 ms a MB): not every server refuses half a body without it, VersityGW for one.
        """
        try:
            with self._errors():
                self._obstore.put(self._opened, name, list(data), mode="create", use_multipart=False)
        except _Taken:
            return False
        return True

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Put an object, in place of one of that name."""
        with self._errors():
            self._obstore.put(
                self._opened, name, iter(data), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )

    def get(self, name: str) -> bytes:
        """Return a whole object."""
        with self._errors():
            return bytes(self._obstore.get(self._opened, name).bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object."""
        with self._errors():
            return bytes(self._obstore.get_range(self._opened, name, start=start, length=length))

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a folder's name."""
        with self._errors():
            found = self._obstore.list(self._opened, prefix)
            return sorted(item["path"] for page in found for item in page)

    def delete(self, name: str) -> None:
        """Delete an object."""
        with self._errors(), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._opened, name)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        from obstore import exceptions

        try:
            yield
        except exceptions.AlreadyExistsError as error:
            raise _Taken from error
        except FileNotFoundError as error:
            raise NoSuchObject(f"{self.url}: {_short(error)}") from error
        except (exceptions.BaseError, OSError, ValueError) as error:
            raise StoreError(f"{self.url}: {_short(error)}") from error


class _Taken(Exception):
    """There is an object of that name."""


def _short(error: Exception) -> str:
    """Return the error in one line: what S3 itself says first, which stands at the end of a long text."""
    text = " ".join(str(error).split())
    said = re.search(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", text)
    if said is not None:
        text = f"{said[1]}: {said[2] or ''} ({text.partition('<')[0].strip()})"
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " …"
