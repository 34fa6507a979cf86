"""The HTTP plane: health, metrics, the API in JSON and the page (docs/http.md), in a process of its own.

The broker binds the socket and starts the process with the first connection. The process parses, encrypts, renders and keeps the
logins of the page. It asks the broker everything else on a channel, with the client's credentials. So slow browsers do not delay
the broker.

plane, child        the socket, and one process after another
answers             to the questions of the process
numbers, health     counts; liveness and readiness
liveness            the health check of a container
statuses, openapi   errors as HTTP statuses; the description of the API
web/, page/         in the process: from the socket to the channel; the page, whose scripts name their subject in line 1
"""
