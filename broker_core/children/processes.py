"""The environment and the priority of child processes."""

from __future__ import annotations

import os
import site
import sys
from pathlib import Path
from typing import Any

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

#: Arguments of Popen with which only the parent receives a terminal's Ctrl-C. In a new session, `step_back` would have no effect:
#: Linux divides processors among sessions first (sched(7), autogroup).
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


def environment() -> dict[str, str]:
    """Return an environment in which `python -m penstock` finds the same package. Paths are absolute, because the child runs in
    another directory."""
    variables = dict(os.environ)
    variables |= {name: os.path.abspath(variables[name]) for name in FILES if variables.get(name)}
    if variables.get("PYTHONPATH"):  # an empty entry is the working directory
        variables["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, variables["PYTHONPATH"].split(os.pathsep)))
    root = str(Path(__file__).parents[3])
    if root not in {*site.getsitepackages(), site.getusersitepackages()}:
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, [root, variables.get("PYTHONPATH")]))
    return variables


def step_back(nice: int) -> None:
    """Give this process less of a shared processor: at 5 the parent gets 3/4 of it, at 10 9/10."""
    os.nice(nice)
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # it does not interrupt others when it wakes up
