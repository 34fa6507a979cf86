"""Nodes that a link names or makes.

- `addresses`: the queue or exchange of an address, and whether the user may use it.
- `filters`: selectors and no-local.
- `dynamic`: nodes that an attach makes.
- `subscriptions`: the queue behind each link from an exchange.
"""
