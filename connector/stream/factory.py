"""The consumer of a query, by the product of its broker."""

from __future__ import annotations

from ...broker_core.client.discovery import Endpoint, LessSafe
from ...broker_core.errors import InvalidOption, PenstockError
from ..access import BrokerAccess
from ..brokers.consumer import BrokersConsumer
from ..foreign.consumer import ForeignConsumer
from ..options import Options
from .consumer import BrokerConsumer, StreamConsumer
from .queues import QueuesConsumer


def consumer_of(options: Options, *, several: bool = False) -> StreamConsumer:
    """Ask the broker which product it is, and return its consumer. `several`: the checkpoint belongs to several brokers."""
    if several or len(options.urls) > 1:
        return BrokersConsumer(options, _of_one_broker)
    return _of_one_broker(options)


def _of_one_broker(options: Options) -> BrokerConsumer:
    access = _penstock(options)
    if access is None:
        return ForeignConsumer(options)
    options.check_names()
    return QueuesConsumer(options, access)


def _penstock(options: Options) -> BrokerAccess | None:
    """Return the access to a Penstock broker; None for another broker.

    With the option `spool`, a broker that does not answer or refuses counts as another one: the spool can be read without it.
    """
    spool, url = options["spool"], options["url"]
    try:
        broker = options.access.look()
    except PenstockError as error:
        if spool is None or isinstance(error, (InvalidOption, LessSafe)):
            raise
        return None
    if broker is None or isinstance(broker, Endpoint):
        if spool is not None:
            raise InvalidOption(f"a Penstock stands at {url}, which needs no spool: leave the option spool out")
        return options.access.at(broker)
    if spool is None:
        raise InvalidOption(
            f"{url} is a plain AMQP 1.0 broker ({broker}): a stream from it needs the option spool, an empty folder of the"
            " query's own that driver and executors reach, such as /data/spool/orders or s3a://bucket/spool/orders"
        )
    return None
