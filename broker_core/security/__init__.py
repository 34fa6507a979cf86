"""Access: the users file, permissions, tokens and TLS, for every plane alike. docs/security.md is its page.

rights.py    the six rights, and queue patterns
users.py     what is kept of users, as a value, and its JSON
store.py     the users file: read, and changed by one process at a time
passwords.py what a password is checked against, and what a check may cost
attempts.py  the limit on failed logins
tokens.py    bearer tokens: from a login on one plane to a call on another
quiet.py     a log that refusals cannot fill
access.py    `Access`: what the planes ask
tls.py       `ServerTls`: the broker's TLS context
certificates.py  the date on which a certificate ends
"""

from .access import ANONYMOUS, Access
from .rights import Right
from .tls import ServerTls

__all__ = ["ANONYMOUS", "Access", "Right", "ServerTls"]
