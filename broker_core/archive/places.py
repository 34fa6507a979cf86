"""Places of tables: a folder of this host, or an object store that delta-rs reaches.

Credentials and endpoints of a store come from the environment, by the names that each cloud's own tools use (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, …), from files that they name, or from the machine's role: never from a setting.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

#: What delta-rs is told beside a URL. Who asks tries again, and says so; one attempt ends within a minute.
_LIMITS = {"timeout": "60s", "connect_timeout": "10s", "max_retries": "3", "retry_timeout": "20s"}
_CONNECT_S, _REQUEST_S, _ATTEMPTS = 10, 60, 4  # the same for pyarrow


def is_local(url: str) -> bool:
    """Say whether a URL names a folder."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    """Return the folder that a URL names."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else url


def file_system(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a store's URL, and the path that the URL names in it."""
    from pyarrow import fs

    if urlsplit(url).scheme not in ("s3", "s3a"):
        system, path = fs.FileSystem.from_uri(url)
        return system, str(path)
    # By its URL, pyarrow would ask Amazon for the region, and would not hear of AWS_REGION.
    found = fs.S3FileSystem(
        endpoint_override=_endpoint(),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        connect_timeout=_CONNECT_S,
        request_timeout=_REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
    )
    return found, f"{urlsplit(url).netloc}{urlsplit(url).path}"


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL", os.environ.get("AWS_ENDPOINT"))


def storage_options(url: str) -> dict[str, str] | None:
    """Return delta-rs's options for a table at this URL; None for a folder."""
    if is_local(url):
        return None
    options = dict(_LIMITS)
    if (_endpoint() or "").startswith("http://"):
        options["allow_http"] = "true"
    if "AWS_ACCESS_KEY_ID" not in os.environ:  # at an endpoint that is not Amazon's, delta-rs would not look into files for it
        options["aws_force_credential_load"] = "true"
    return options
