"""In the process of the HTTP plane. It imports nothing of the broker but the channel's frames, TLS, addresses of peers and texts
of errors.

process      from its start to its end
connections  one socket of a client: limits in time
shares       budgets of all connections, before a login and after it: their number and the bytes they hold
framing      where a request ends; ambiguous requests, refused
application  paths, and what each answers
credentials  credentials that the broker accepted lately
bodies       bodies of requests, and their sizes
replies      answers in JSON
guards       requests that a foreign page could have made, refused; headers of every answer
channel      questions to the broker, and their answers
counts       counts of all queues, as the broker sends them, and for the page
metrics      numbers of the broker, for Prometheus
sessions     logins of the page
files        the page's files
"""
