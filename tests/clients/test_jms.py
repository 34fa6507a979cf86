"""W4: qpid-jms, unmodified, with every feature of JMS 2.0 of the OASIS *AMQP binding and mapping for JMS*, and Spring over it.

One start of the Java program `Questions` (qpid_jms/) asks all questions. Each of its answers is a test here.
"""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .asking import faults
from .conftest import command_or_skip

#: Queues that are not plain, by question: type and options. Every question has a queue or a topic with its name.
QUEUES: dict[str, tuple[str, dict[str, Any]]] = {
    "higher_priorities_first": ("priority", {"levels": 10}),
    "a_group_has_one_consumer_at_a_time": ("fifo", {"groups": "held"}),
    "an_exclusive_queue_has_one_consumer": ("fifo", {"consumers": "exclusive"}),
    "a_single_active_consumer_is_followed_by_the_next": ("fifo", {"consumers": "single"}),
    "only_the_last_value_of_a_key_waits": ("lastvalue", {"key": "properties.key"}),
    "after_the_last_attempt_it_is_a_dead_letter": (
        "fifo",
        {"maxAttempts": 2, "deadLetterQueue": "after_the_last_attempt_it_is_a_dead_letter.dead"},
    ),
    "spring_a_failed_listener_gets_it_again_until_it_is_a_dead_letter": (
        "fifo",
        {"maxAttempts": 2, "deadLetterQueue": "spring_a_failed_listener_gets_it_again_until_it_is_a_dead_letter.dead"},
    ),
    "an_asynchronous_send_that_is_refused": ("fifo", {"maxMessages": 1, "overflow": "reject"}),
    "a_full_queue_refuses": ("fifo", {"maxMessages": 2, "overflow": "reject"}),
    "a_full_queue_lets_its_senders_wait": ("fifo", {"maxMessages": 2, "overflow": "block"}),
    "a_full_queue_lets_a_producer_of_no_destination_wait": ("fifo", {"maxMessages": 2, "overflow": "block"}),
    "the_oldest_of_a_ring_goes": ("fifo", {"maxMessages": 2, "overflow": "ring"}),
}
MORE_QUEUES = (
    "one_transaction_over_several_queues.to",
    "after_the_last_attempt_it_is_a_dead_letter.dead",
    "spring_a_failed_listener_gets_it_again_until_it_is_a_dead_letter.dead",
)
MORE_TOPICS = ("another_selector_or_topic_makes_it_anew.other",)

#: Question → the ids it shows.
ON_QUEUES = {
    # QueueQuestions
    "order_is_kept": "Q1 W4",
    "an_unknown_queue_is_an_invalid_destination": "W4",
    "a_browser_sees_and_leaves": "Q6",
    "a_browser_with_a_selector": "Q6 Q8",
    "a_selector_takes_what_matches_and_leaves_the_rest": "Q2 Q8",
    "a_selector_knows_headers_properties_and_operators": "Q8",
    "a_selector_waits_for_what_matches": "Q8 C4",
    "a_wrong_selector_is_refused": "Q8",
    "no_local_on_a_queue": "C10",
    "higher_priorities_first": "Q7",
    "a_group_has_one_consumer_at_a_time": "Q16",
    "an_exclusive_queue_has_one_consumer": "Q5",
    "a_single_active_consumer_is_followed_by_the_next": "Q22",
    "only_the_last_value_of_a_key_waits": "Q17",
    # MessageQuestions
    "an_object_message": "W4",
    "a_map_message": "W4",
    "a_stream_message": "W4",
    "a_bytes_message_and_one_without_a_body": "W4",
    "headers": "W4",
    "properties_of_every_type": "W4",
    # AcknowledgeQuestions
    "client_acknowledge_takes_all_so_far": "C6 C7",
    "individual_acknowledge_takes_one": "C7",
    "dups_ok_acknowledges_in_time": "C7",
    "recover_delivers_again": "C7 Q10",
    "what_was_not_acknowledged_comes_back_counted": "C8 Q10",
    "after_the_last_attempt_it_is_a_dead_letter": "Q13",
    "a_listener_hears_one_after_another": "W4",
    "a_stopped_connection_delivers_nothing": "W4",
    # TransactionQuestions
    "a_commit_sends_and_takes": "C11",
    "a_rollback_undoes_sends_and_receipts": "C11",
    "a_rollback_with_prefetched_messages_keeps_their_order": "C11",
    "one_transaction_over_several_queues": "C11",
    "a_lost_connection_rolls_back": "C11",
    "a_transaction_larger_than_the_credit": "C11",
    # TimeQuestions
    "an_expired_message_is_not_delivered": "Q9",
    "a_delayed_message_comes_when_it_is_due": "Q18",
    # TemporaryQuestions
    "a_temporary_queue": "E2",
    "only_its_connection_consumes_from_it": "E2",
    "a_deleted_one_takes_nothing": "E2",
    "it_ends_with_its_connection": "E2",
    "a_temporary_topic": "E2",
    "request_and_reply": "E2",
    # FlowQuestions
    "asynchronous_sends_complete_in_order": "C9",
    "an_asynchronous_send_that_is_refused": "C9 Q15",
    "a_full_queue_refuses": "Q15",
    "a_full_queue_lets_its_senders_wait": "Q15 C9",
    "a_full_queue_lets_a_producer_of_no_destination_wait": "Q15",
    "the_oldest_of_a_ring_goes": "Q15",
    "without_prefetch_each_receive_is_a_pull": "C5",
    "presettled_sends_and_receipts": "C6",
    # ContextQuestions
    "a_context_sends_and_receives_bodies": "W4",
    "a_context_listens": "W4",
    "a_transacted_context": "C11",
    "a_context_acknowledges": "C7",
    "a_context_refuses_what_is_not_there": "W4",
    # SpringQuestions
    "spring_a_template_keeps_the_order": "Q1 W4",
    "spring_a_converter_knows_each_kind_of_body": "W4",
    "spring_headers_and_the_quality_of_service": "W4",
    "spring_a_selector_takes_what_matches": "Q8",
    "spring_a_browser_leaves_the_messages": "Q6",
    "spring_a_delayed_message_comes_when_it_is_due": "Q18",
    "spring_an_unknown_queue_is_refused_and_the_connection_lives_on": "W4",
    "spring_a_client_sends_and_receives": "W4",
    "spring_a_transaction_is_committed_or_rolled_back": "C11",
    "spring_the_consumers_of_a_container_divide_a_queue": "W4",
    "spring_a_failed_listener_gets_it_again_until_it_is_a_dead_letter": "Q13",
    "spring_a_reply_comes_to_a_temporary_queue": "E2",
}
ON_TOPICS = {
    # TopicQuestions
    "each_subscriber_hears_what_comes_after_it": "E1",
    "an_unknown_topic_is_an_invalid_destination": "E3",
    "its_messages_say_their_topic": "E1",
    "a_subscriber_with_a_selector": "E1 Q8",
    "no_local": "C10",
    "a_producer_of_no_destination_publishes": "E1",
    "a_queue_and_a_topic_are_not_each_other": "E1",
    "acknowledged_by_each_subscriber_alone": "E1",
    # SubscriptionQuestions
    "a_client_id_is_taken_once": "W4",
    "a_durable_subscription_outlives_its_connection": "E1 E2",
    "an_unsubscribed_one_is_gone": "E2",
    "another_selector_or_topic_makes_it_anew": "E1",
    "a_durable_subscription_without_ones_own": "C10",
    "each_client_id_has_its_own": "E1",
    "a_shared_subscription_is_shared": "E1 E2",
    "a_shared_one_of_a_client_id": "E1",
    "a_shared_durable_subscription": "E1",
    "a_shared_durable_subscription_of_all": "E1",
    "a_shared_one_in_use_keeps_its_selector": "E1",
    # others
    "a_transacted_subscriber": "C11 E1",
    "a_delayed_publication": "Q18 E1",
    "a_context_with_temporary_queue_topic_and_delay": "E2 Q18",
    "spring_a_durable_subscription_outlives_its_container": "E1",
    "spring_a_shared_subscription_is_divided": "E1",
}
QUESTIONS = {**ON_QUEUES, **ON_TOPICS}


@pytest.fixture(scope="module")
def answers(broker: Broker, flight: Client) -> dict[str, str | None]:
    """Faults that each question found, or None."""
    command = command_or_skip("qpid_jms")
    for name in (*MORE_QUEUES, *ON_QUEUES):
        type_, options = QUEUES.get(name, ("fifo", {}))
        flight.call("queue.declare", queue=name, type=type_, options=options)
    for name in (*MORE_TOPICS, *ON_TOPICS):
        flight.call("exchange.declare", exchange=name, type="topic", options={"unroutable": "drop"})
    return faults([*command[:-1], "Questions"], broker.amqp_url)


@pytest.mark.parametrize("question", [pytest.param(name, id=f"{name} ({ids})") for name, ids in QUESTIONS.items()])
def test_jms(question: str, answers: dict[str, str | None]) -> None:
    assert answers[question] is None


def test_every_question_is_a_test(answers: dict[str, str | None]) -> None:
    assert set(answers) == set(QUESTIONS)


def test_nothing_is_left_behind(answers: dict[str, str | None], flight: Client) -> None:
    """E2: temporary queues, and those of subscriptions that were not durable or were unsubscribed, are gone."""
    assert not {stat["queue"] for stat in flight.call("queue.list")["queues"]} - {*QUESTIONS, *MORE_QUEUES}
