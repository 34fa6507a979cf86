"""S3, Google Cloud Storage and Azure as an `ObjectStore`, through the library obstore."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .. import DISTRIBUTION
from ..errors import InvalidRequest
from . import credentials
from .objects import Buffer, NoSuchObject, StoreError

SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
PART_BYTES = 8 << 20  # of a large object, in one request
PARALLEL_PARTS = 2
TEXT_MAX = 300  # characters of a store's answer in an error


class BucketStore:
    """Objects below a URL such as `s3://bucket/folder`."""

    def __init__(self, url: str) -> None:
        if url.partition("://")[0] not in SCHEMES:
            raise InvalidRequest(
                f"{url} is not the URL of a store; begin with {'://, '.join(SCHEMES[:-1])}://, file:// or a folder's path"
            )
        try:
            import obstore  # folders do not need it
        except ImportError:
            raise InvalidRequest(f"{url} needs the package obstore: pip install '{DISTRIBUTION}[broker]'") from None
        self.url = url
        self._obstore = obstore
        self._store: Any = None

    @property
    def _opened(self) -> Any:
        if self._store is None:
            from obstore.store import MemoryStore, from_url

            is_memory = self.url.startswith("memory://")
            self._store = MemoryStore() if is_memory else from_url(self.url, **credentials.obstore_options())
        return self._store

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """The request signs the SHA-256 of the body (0.6 ms a MB, outside the GIL). Without it some servers, such as VersityGW,
        accept half a body."""
        with self._errors():
            try:
                self._obstore.put(self._opened, name, list(data), mode="create", use_multipart=False)
            except self._obstore.exceptions.AlreadyExistsError:
                return False
        return True

    def put(self, name: str, data: Iterable[bytes]) -> None:
        with self._errors():
            self._obstore.put(
                self._opened, name, iter(data), use_multipart=True, chunk_size=PART_BYTES, max_concurrency=PARALLEL_PARTS
            )

    def get(self, name: str) -> bytes:
        with self._errors():
            return bytes(self._obstore.get(self._opened, name).bytes())

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self._errors():
            return bytes(self._obstore.get_range(self._opened, name, start=start, length=length))

    def names(self, prefix: str) -> list[str]:
        with self._errors():
            pages = self._obstore.list(self._opened, prefix)
            return sorted(item["path"] for page in pages for item in page)

    def delete(self, name: str) -> None:
        with self._errors(), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._opened, name)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise NoSuchObject(f"{self.url}: {_one_line(error)}") from error
        except (self._obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise StoreError(f"{self.url}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    """Return an error on one line, S3's code and message first."""
    text = " ".join(str(error).split())
    answer = re.search(r"<Code>(.*?)</Code>(?:.*?<Message>(.*?)</Message>)?", text)
    if answer is not None:
        text = f"{answer[1]}: {answer[2] or ''} ({text.partition('<')[0].strip()})"
    return text if len(text) <= TEXT_MAX else text[:TEXT_MAX] + " …"
