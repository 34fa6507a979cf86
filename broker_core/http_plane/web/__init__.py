"""The process of the HTTP plane. It imports little of the broker: the channel's frames, TLS, peers and errors.

process               from its start to its end
connections, framing  one socket of a client, and where its requests end
shares                budgets of all connections
application, bodies, replies, files    paths, requests and their answers
guards                against foreign pages
credentials, sessions credentials that the broker accepted lately; logins of the page
channel               questions to the broker
counts, metrics       counts of all queues; metrics for Prometheus
"""
