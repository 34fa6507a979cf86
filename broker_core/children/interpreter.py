"""The environment of child processes that run this package."""

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
    """Return this process's environment, changed so that `python -m penstock` finds the same package. Relative paths become
    absolute, because the child runs in another directory."""
    variables = dict(os.environ)
    variables |= {name: os.path.abspath(variables[name]) for name in FILES if variables.get(name)}
    if variables.get("PYTHONPATH"):  # an empty entry is the working directory
        variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, variables["PYTHONPATH"].split(os.pathsep)))
    root = str(Path(__file__).parents[3])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [root, variables.get("PYTHONPATH")]))
    return variables
