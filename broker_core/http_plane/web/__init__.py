"""The process of the HTTP plane. It imports little of the broker: the channel's frames, TLS, peers and errors.

process      from its start to its end
connections  one socket of a client: limits in time
shares       budgets of all connections, before a login and after it: their number and the bytes they hold
framing      where a request ends; ambiguous requests, refused
application  paths and their answers
credentials  credentials that the broker accepted lately
bodies       bodies of requests and their limits
replies      answers in JSON
guards       refusal of requests from foreign pages; headers of every answer
channel      questions to the broker and their answers
counts       counts of all queues, from the broker and for the page
metrics      numbers of the broker, for Prometheus
sessions     logins of the page
files        the page's files
"""
