"""One connection: its socket, its login, its peer.

transport, layers/   a socket; TLS and WebSocket as octets in, octets out
peer                 the protocol's events into links, from the login on
opening              who is let in, and with which words not
revocation           who may stay when the users file changes
containers           whose links they are
capacity             what its links hold unsettled, and may still take
listing              connections as an operator sees them
unfinished           messages whose last frame has not come
"""
