"""In the process of the HTTP plane. It imports nothing of the broker but the channel's frames, TLS and texts of errors.

process      from its start to its end
connections  one socket of a client: limits in time and size
application  paths, and what each answers
replies      answers in JSON
guards       requests that a foreign page could have made, refused; headers of every answer
channel      questions to the broker, and their answers
counts       counts of all queues, as the broker sends them, and for the page
metrics      numbers of the broker, for Prometheus
sessions     logins of the page
files        the page's files
"""
