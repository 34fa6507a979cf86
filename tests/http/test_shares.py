"""Choice of the connection that is closed for another one: by address or user, and by how long it waits for its client."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.broker_core.http_plane.web.shares import MAX_STRANGERS, STRANGERS_BYTES, USERS_BYTES, Shares


@dataclass(eq=False)
class Client:
    """A connection that is only counted."""

    is_served: bool = False
    is_dropped: bool = field(default=False, init=False)

    def drop(self) -> None:
        self.is_dropped = True


def entered(shares: Shares, count: int, peer: str, user: str | None = None, *, is_served: bool = False) -> list[Client]:
    clients = [Client(is_served) for _ in range(count)]
    for client in clients:
        assert shares.enter(client, peer)
        if user is not None:
            shares.assign(client, user, peer)
    return clients


def dropped(clients: list[Client]) -> list[int]:
    return [at for at, client in enumerate(clients) if client.is_dropped]


def test_strangers_have_half_of_the_places_and_at_most_a_fixed_number() -> None:
    assert [Shares(most).most_strangers for most in (1, 2, 3, 100, 512, 100_000)] == [1, 1, 1, 50, 256, 256]
    for most in (1, 2, 10, 10_000):
        shares = Shares(most)
        clients = entered(shares, most + MAX_STRANGERS, "10.0.0.1:1")
        assert len(clients) - len(dropped(clients)) == shares.most_strangers
        assert not clients[-1].is_dropped


def test_the_address_with_the_most_connections_loses_the_one_that_waits_longest() -> None:
    shares = Shares(20)
    single, many = entered(shares, 1, "10.0.0.1:1"), entered(shares, 9, "10.0.0.2:1")
    shares.touch(many[0])
    many[1].is_served = True
    more = entered(shares, 2, "10.0.0.3:1")
    assert (dropped(single), dropped(many), dropped(more)) == ([], [2, 3], [])


def test_addresses_of_one_network_of_ipv6_count_as_one() -> None:
    shares = Shares(20)
    single = entered(shares, 1, "10.0.0.1:1")
    many = [client for number in range(9) for client in entered(shares, 1, f"[2001:db8::{number}]:1")]
    entered(shares, 3, "[2001:db8::ff]:1")
    assert (dropped(single), dropped(many)) == ([], [0, 1, 2])


def test_a_stranger_of_another_machine_does_not_take_the_place_of_one_of_this_machine() -> None:
    for local in ("127.0.0.1:1", "[::1]:1"):
        shares = Shares(20)
        probes = entered(shares, 6, local)
        strangers = [client for number in range(50) for client in entered(shares, 1, f"10.0.0.{number}:1")]
        assert dropped(probes) == []
        assert len(strangers) - len(dropped(strangers)) == 4


def test_strangers_that_are_all_served_do_not_keep_others_out() -> None:
    shares = Shares(20)
    served = entered(shares, 10, "10.0.0.1:1", is_served=True)
    entered(shares, 1, "10.0.0.2:1")
    assert dropped(served) == [0]


def test_a_newcomer_takes_the_place_of_an_idle_user_of_whom_there_are_most_and_of_no_request() -> None:
    shares = Shares(10)
    alice, bob = entered(shares, 2, "10.0.0.1:1", "alice"), entered(shares, 8, "10.0.0.2:1", "bob")
    bob[0].is_served = True
    assert shares.enter(Client(), "10.0.0.3:1")
    assert (dropped(alice), dropped(bob)) == ([], [1])
    shares = Shares(10)
    busy = entered(shares, 10, "10.0.0.1:1", "alice", is_served=True)
    assert not shares.enter(Client(), "10.0.0.3:1")
    assert dropped(busy) == []


def test_bytes_are_taken_from_whom_holds_the_most() -> None:
    for user, rival, limit in ((None, None, STRANGERS_BYTES), ("alice", "bob", USERS_BYTES)):
        shares = Shares(512)
        single, many = entered(shares, 1, "10.0.0.1:1", user), entered(shares, 8, "10.0.0.2:1", rival)
        assert shares.hold(single[0], limit // 16)
        many[0].is_served = True
        assert all(shares.hold(client, limit // 8) for client in many)
        assert (dropped(single), dropped(many)) == ([], [1])
        assert shares.hold(single[0], limit // 8)
        assert (dropped(single), dropped(many)) == ([], [1])
        assert not shares.hold(many[1], 1)  # it is closed
        for client in many:
            client.is_served = True
        assert not shares.hold(single[0], limit // 2)  # every other one is served
        shares.leave(many[2])
        assert shares.hold(single[0], limit // 4)


def test_what_a_connection_holds_goes_with_it() -> None:
    """A connection moves from strangers to a user, back, and to another user. A closed connection frees its bytes."""
    shares = Shares(512)
    (client,) = entered(shares, 1, "10.0.0.1:1")
    shares.hold(client, 1000)
    for user in ("alice", "alice", "bob", None, None, "alice"):
        shares.assign(client, user, "10.0.0.1:1")
        assert (shares._users.held, shares._strangers.held) == ((0, 1000) if user is None else (1000, 0))
    shares.leave(client)
    shares.leave(client)
    shares.assign(client, "alice", "10.0.0.1:1")
    shares.touch(client)
    assert (shares._users.held, shares._strangers.held, len(shares._users), len(shares._strangers)) == (0, 0, 0, 0)
