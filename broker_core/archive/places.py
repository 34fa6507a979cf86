"""Places of tables: a folder of this host, or an object store that delta-rs reaches.

Credentials and endpoints of a store come from the environment, by the names that each cloud's own tools use (AWS_ACCESS_KEY_ID,
AWS_ENDPOINT_URL, …), from files that they name, or from the machine's role: never from a setting. delta-rs writes and pyarrow
reads; what pyarrow does not look for by itself is handed to it, so that both hear of the same names.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import unquote, urlsplit

#: What delta-rs is told beside a URL. Who asks tries again, and says so; one attempt ends within a minute.
_LIMITS = {"timeout": "60s", "connect_timeout": "10s", "max_retries": "3", "retry_timeout": "20s"}
_CONNECT_S, _REQUEST_S, _ATTEMPTS = 10, 60, 4  # the same for pyarrow

#: Azure's schemes, and where delta-rs looks for a key, a token (shared access signature) and an endpoint that is not Azure's.
AZURE = ("az", "azure", "abfs", "abfss")
_KEYS = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_TOKENS = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")
_ENDPOINTS = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT")


def is_local(url: str) -> bool:
    """Say whether a URL names a folder."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    """Return the folder that a URL names."""
    return unquote(urlsplit(url).path) if url.startswith("file://") else url


def file_system(url: str) -> tuple[Any, str]:
    """Return pyarrow's file system of a store's URL, and the path that the URL names in it.

    Raises ValueError for a URL that names no account of Azure where the environment names none either, and what pyarrow raises.
    """
    from pyarrow import fs

    if urlsplit(url).scheme in AZURE:
        return _azure(url)
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


def _azure(url: str) -> tuple[Any, str]:
    """Azure's: `abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/…`, or `az://CONTAINER/…` with the account in the environment.

    By its URL, pyarrow would know neither the second form nor a key or token. Where the environment has none, Azure's library
    asks for an identity: of AZURE_CLIENT_ID and its secret, of the workload, or of the machine.
    """
    from pyarrow import fs

    parts = urlsplit(url)
    container, at, host = parts.netloc.rpartition("@")
    account, _, domain = host.partition(".dfs.") if at else (os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""), "", "")
    if not account:
        raise ValueError(f"{url} names no account: set AZURE_STORAGE_ACCOUNT_NAME, or name abfss://CONTAINER@ACCOUNT.dfs.…")
    options: dict[str, str] = {}
    if endpoint := _first(_ENDPOINTS):
        for service in ("blob", "dfs"):
            options |= {
                f"{service}_storage_authority": urlsplit(endpoint).netloc,
                f"{service}_storage_scheme": urlsplit(endpoint).scheme,
            }
    elif domain:  # of a cloud that may not be Azure's public one
        options = {f"{service}_storage_authority": f".{service}.{domain}" for service in ("blob", "dfs")}
    if key := _first(_KEYS):
        options["account_key"] = key
    elif token := _first(_TOKENS):
        options["sas_token"] = "?" + token.removeprefix("?")
    return fs.AzureFileSystem(account, **options), f"{container if at else host}{parts.path}"


def _first(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def storage_options(url: str) -> dict[str, str] | None:
    """Return delta-rs's options for a table at this URL; None for a folder."""
    if is_local(url):
        return None
    options = dict(_LIMITS)
    if any((endpoint or "").startswith("http://") for endpoint in (_endpoint(), _first(_ENDPOINTS))):
        options["allow_http"] = "true"
    if "AWS_ACCESS_KEY_ID" not in os.environ:  # at an endpoint that is not Amazon's, delta-rs would not look into files for it
        options["aws_force_credential_load"] = "true"
    return options
