"""The environment of child processes in which Python runs this package."""

from __future__ import annotations

import os
import site
from pathlib import Path

#: Variables that name files for the clients of object stores, and for TLS.
FILES = (
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
)


def environment() -> dict[str, str]:
    """Return this process's environment, in which `python -m penstock` finds the package where this process has it.

    Relative paths in it become absolute, because the child runs in another directory.
    """
    found = dict(os.environ)
    found |= {name: os.path.abspath(found[name]) for name in FILES if found.get(name)}
    if found.get("PYTHONPATH"):  # an empty entry is the working directory
        found["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, found["PYTHONPATH"].split(os.pathsep)))
    root = str(Path(__file__).parents[3])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [root, found.get("PYTHONPATH")]))
    return found
