"""The HTTP plane: health, metrics, the API in JSON and the page (docs/http.md), in a process of its own.

The broker binds the socket, and starts the process with the first connection. The process parses, encrypts, renders and keeps
logins of the page; what it wants to know it asks the broker on a channel, with whatever the client showed of itself. So a slow
browser, or a hundred, cost the broker's loops nothing, and who may do what is decided here as for the other planes.

plane       `HttpPlane`: the socket, and one process after another
child       one process: started, heard, ended
answers     what the process may ask, and what it hears
numbers     counts and samples of queues, numbers of the broker
health      whether the broker lives, and is ready
statuses    errors as HTTP has them
openapi     the API described, from the table of actions
responses   its answers as schemas
web/        in the process: from the socket to the channel
page/       the page's files
"""
