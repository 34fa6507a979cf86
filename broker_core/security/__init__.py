"""Users, permissions, tokens and TLS, the same for every plane. docs/security.md is their page.

- rights: the six rights, and queue patterns.
- users: an immutable set of users and permissions, and its JSON.
- users_file: the users file, which one process at a time changes.
- passwords: password checks and their cost.
- failed_logins: the limit on failed logins.
- tokens: bearer tokens, from a login on one plane to a call on another.
- log_limit: a limit on log lines about refused clients.
- access: `Access`, which identifies users and checks permissions for the planes.
- tls: `ServerTls`, the broker's TLS context.
- certificates: the expiry date of a certificate.
"""

from .access import ANONYMOUS, Access
from .rights import Right
from .tls import ServerTls

__all__ = ["ANONYMOUS", "Access", "Right", "ServerTls"]
