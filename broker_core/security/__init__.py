"""Users, permissions, tokens and TLS, the same for every plane. docs/security.md is their page.

- access: identifies users and checks permissions for the planes.
- rights, users, users_file: rights; users and permissions as a value; their file.
- shared_access, keys_file: tokens that clients of Service Bus sign, and the keys.
- passwords, tokens: password checks and their cost; bearer tokens.
- failed_logins, log_limit: limits on failed logins, and on log lines about refused clients.
- audit: the changes of the broker and their users.
- tls: the broker's TLS context; expiry dates.
"""

from .access import Access
from .rights import Right
from .tls import ServerTls
from .users import ANONYMOUS

__all__ = ["ANONYMOUS", "Access", "Right", "ServerTls"]
