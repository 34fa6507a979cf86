"""Wrong calls. Each line has the code of mypy's error."""

import penstock


def calls(connection: penstock.Connection) -> None:
    connection.send("orders", jason={"id": 7})  # call-arg
    connection.send("orders", "x", priority="high")  # arg-type
    connection.send("orders", Exception())  # arg-type
    connection.queue(7)  # arg-type
    penstock.connect_async("amqp://127.0.0.1", pasword="x")  # call-arg
    for message in connection.queue("orders").receive(timeout="5"):  # arg-type
        message.retry(after="later")  # arg-type
        subject: str = message.subject  # assignment
        print(subject)
    penstock.Backoff(first="1")  # call-arg
    penstock.worker("orders", concurency=4)  # call-arg
    penstock.explain("no error")  # arg-type


@penstock.worker("orders")  # arg-type
def handle(message: str) -> None:
    print(message)
