"""The HTTP plane: health, metrics, the API in JSON and the page (docs/http.md), in a process of its own.

The broker binds the socket and starts the process with the first connection. The process parses, encrypts, renders and keeps the
logins of the page. It asks the broker everything else on a channel, with the credentials of the client. So slow browsers do not
delay the broker's loops, and the broker decides about permissions as for the other planes.

plane       `HttpPlane`: the socket, and one process after another
child       one process: start, frames, end
answers     the questions of the process, and their answers
numbers     counts and samples of queues, numbers of the broker
health      liveness and readiness of the broker
statuses    errors as HTTP statuses
openapi     the description of the API, from the declarations of the actions
web/        in the process: from the socket to the channel
page/       the files of the page
"""
