"""Credentials and endpoints of object stores, for obstore, delta-rs and pyarrow.

They come from variables of each cloud's own tools, from files that these name, or from the role of the machine, never from a
setting. pyarrow does not read most of these variables itself.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from .folders import is_local

# One attempt ends within a minute; callers repeat a failed request themselves.
CONNECT_S, REQUEST_S = 10, 60  # a request of 16 MiB at 300 KB/s
_DELTA_LIMITS = {"timeout": f"{REQUEST_S}s", "connect_timeout": f"{CONNECT_S}s", "max_retries": "3", "retry_timeout": "20s"}
_ARROW_ATTEMPTS = 4

AZURE = ("az", "azure", "abfs", "abfss")  # schemes of URLs
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_TOKENS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_AZURE_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")
_S3_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def delta_options(url: str) -> dict[str, str] | None:
    """Return None for a local folder."""
    if is_local(url):
        return None
    options = dict(_DELTA_LIMITS)
    if _has_plain_http():
        options["allow_http"] = "true"
    if "AWS_ACCESS_KEY_ID" not in os.environ:  # otherwise delta-rs ignores credential files at an endpoint of another vendor
        options["aws_force_credential_load"] = "true"
    return options


def delta_file_system(url: str) -> Any:
    """Return a file system that reaches a store's URL as delta-rs does. Needs deltalake."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    return PyFileSystem(DeltaStorageHandler(url, delta_options(url)))


def obstore_options() -> dict[str, Any]:
    client: dict[str, Any] = {"timeout": timedelta(seconds=REQUEST_S), "connect_timeout": timedelta(seconds=CONNECT_S)}
    if _has_plain_http():
        client["allow_http"] = True
    # Few retries: the caller repeats a failed request, and reports it.
    return {"client_options": client, "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}}


def arrow_file_system(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system, and the path in it. Raises ValueError without an account, and errors of pyarrow."""
    from pyarrow import fs

    parts = urlsplit(url)
    if parts.scheme in AZURE:
        return _azure(url)
    if parts.scheme not in ("s3", "s3a"):
        system, path = fs.FileSystem.from_uri(url)
        return system, str(path)
    # Opened by URL, pyarrow would ask Amazon for the region, and would ignore AWS_REGION.
    system = fs.S3FileSystem(
        endpoint_override=_first_set(_S3_ENDPOINTS),
        region=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
        connect_timeout=CONNECT_S,
        request_timeout=REQUEST_S,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ARROW_ATTEMPTS),
    )
    return system, f"{parts.netloc}{parts.path}"


def _azure(url: str) -> tuple[Any, str]:
    """Open `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…`, or `az://CONTAINER/…` with the account in the environment.

    pyarrow itself supports neither the second form nor a key or token. Without both, Azure's library looks for an identity.
    """
    from pyarrow import fs

    parts = urlsplit(url)
    container, at, host = parts.netloc.rpartition("@")
    account, _, domain = host.partition(".dfs.") if at else (os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""), "", "")
    if not account:
        raise ValueError(f"{url} names no account: set AZURE_STORAGE_ACCOUNT_NAME, or name abfss://CONTAINER@ACCOUNT.dfs.…")
    options: dict[str, str] = {}
    if endpoint := _first_set(_AZURE_ENDPOINTS):
        for service in ("blob", "dfs"):
            options |= {
                f"{service}_storage_authority": urlsplit(endpoint).netloc,
                f"{service}_storage_scheme": urlsplit(endpoint).scheme,
            }
    elif domain:  # may be a sovereign cloud
        options = {f"{service}_storage_authority": f".{service}.{domain}" for service in ("blob", "dfs")}
    if key := _first_set(_KEYS):
        options["account_key"] = key
    elif token := _first_set(_TOKENS):
        options["sas_token"] = "?" + token.removeprefix("?")
    return fs.AzureFileSystem(account, **options), f"{container if at else host}{parts.path}"


def _has_plain_http() -> bool:
    return any((_first_set(names) or "").startswith("http://") for names in (_S3_ENDPOINTS, _AZURE_ENDPOINTS))


def _first_set(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
