"""W4: the Vert.x AMQP client, unmodified. One start of its program `Questions` (vertx/) asks all questions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .asking import faults
from .conftest import command_or_skip

#: Options of the queues that are not plain, by question. Every question has a queue with its name.
OPTIONS: dict[str, dict[str, Any]] = {
    "a_rejected_message_is_a_dead_letter": {"deadLetterQueue": "a_rejected_message_is_a_dead_letter.dead"},
    "a_full_queue_refuses_with_its_reason": {"maxMessages": 1, "overflow": "reject"},
}
EXCHANGE = "a_durable_subscription_outlives_its_connection"
#: Question → the ids it shows.
QUESTIONS = {
    "order_is_kept": "Q1",
    "each_kind_of_body": "W4",
    "headers_and_properties": "W4",
    "a_released_message_comes_again_uncounted": "C7",
    "modified_as_failed_counts_the_attempt": "Q10",
    "undeliverable_here_goes_to_another_receiver": "C7",
    "a_rejected_message_is_a_dead_letter": "Q13",
    "a_paused_receiver_takes_only_its_buffer": "C4",
    "a_lost_connection_gives_back_what_it_held": "C8",
    "at_most_once_is_settled_on_its_way": "C6",
    "a_selector_takes_what_matches": "Q8",
    "an_anonymous_sender_goes_by_the_address_of_each_message": "W4",
    "an_unknown_address_is_refused_and_the_connection_lives_on": "W4",
    "a_full_queue_refuses_with_its_reason": "Q15",
    "a_reply_comes_to_a_dynamic_receiver": "E2",
    EXCHANGE: "E1",
}


@pytest.fixture(scope="module")
def answers(broker: Broker, flight: Client) -> dict[str, str | None]:
    """Faults that each question found, or None."""
    command = command_or_skip("vertx")
    for name in (*QUESTIONS, "a_rejected_message_is_a_dead_letter.dead"):
        if name != EXCHANGE:
            flight.call("queue.declare", queue=name, options=OPTIONS.get(name, {}))
    flight.call("exchange.declare", exchange=EXCHANGE, type="topic", options={"unroutable": "drop"})
    return faults(command, broker.amqp_url)


@pytest.mark.parametrize("question", [pytest.param(name, id=f"{name} ({ids})") for name, ids in QUESTIONS.items()])
def test_vertx(question: str, answers: dict[str, str | None]) -> None:
    assert answers[question] is None


def test_every_question_is_a_test(answers: dict[str, str | None]) -> None:
    assert set(answers) == set(QUESTIONS)
