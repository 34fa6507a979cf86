"""Nodes that a link names or makes.

addresses       which queue or exchange an address means, and whether the user may use it
filters         selectors and no-local
dynamic         nodes that an attach makes
subscriptions   the queue behind each link from an exchange
"""
