"""Penstock: message queues as Spark tables, and back.

    import penstock

    penstock.register(spark)                                # format("amqp") for this Spark session
    penstock.archive(spark, "orders")                       # all settled messages, as a DataFrame

    with penstock.Broker("data") as broker:                 # a broker in a child process

        with penstock.connect(broker.amqp_url) as connection:
            connection.send("orders", json={"id": 7})       # an AMQP 1.0 client for applications

    print(penstock.explain(error))                          # the important sentence of a Spark error

An import of this package imports nothing else, because a Spark executor needs only a part of it. The parts:

broker_core    the broker, its planes and its clients
connector      the data source and the sink for Spark
jobs           jobs for spark-submit
testing        a broker in the process of a user's tests
extras         the extra that installs a missing package

In the repository the first three are links to folders at the top level.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from penstock.broker_core import __version__

if TYPE_CHECKING:
    from penstock.broker_core.amqp import Message
    from penstock.broker_core.amqp.performatives import Header, Properties
    from penstock.broker_core.client.app import (
        AcknowledgeMode,
        AsyncConnection,
        AsyncPipeline,
        AsyncQueue,
        Backoff,
        Confirmation,
        Connection,
        Consumer,
        InDoubt,
        NoReply,
        NotAllSent,
        Pipeline,
        Producer,
        Queue,
        ReceivedMessage,
        RedriveResult,
        RolledBack,
        Session,
        Worker,
        connect,
        connect_async,
        worker,
    )
    from penstock.broker_core.errors import PenstockError
    from penstock.broker_core.server.child import Broker
    from penstock.connector import archive, register
    from penstock.connector.explanation import explain

__all__ = [
    "AcknowledgeMode",
    "AsyncConnection",
    "AsyncPipeline",
    "AsyncQueue",
    "Backoff",
    "Broker",
    "Confirmation",
    "Connection",
    "Consumer",
    "Header",
    "InDoubt",
    "Message",
    "NoReply",
    "NotAllSent",
    "PenstockError",
    "Pipeline",
    "Producer",
    "Properties",
    "Queue",
    "ReceivedMessage",
    "RedriveResult",
    "RolledBack",
    "Session",
    "Worker",
    "__version__",
    "archive",
    "connect",
    "connect_async",
    "explain",
    "register",
    "worker",
]

_MODULES = {
    "Broker": "penstock.broker_core.server.child",
    "Header": "penstock.broker_core.amqp.performatives",
    "Message": "penstock.broker_core.amqp",
    "PenstockError": "penstock.broker_core.errors",
    "archive": "penstock.connector",
    "Properties": "penstock.broker_core.amqp.performatives",
    "explain": "penstock.connector.explanation",
    "register": "penstock.connector",
}
_NEEDED = {"Broker": "numpy", "archive": "pyspark", "register": "pyspark"}  # packages


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _NEEDED:
        from penstock.extras import require

        require(_NEEDED[name], f"penstock.{name}")
    return getattr(import_module(_MODULES.get(name, "penstock.broker_core.client.app")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
