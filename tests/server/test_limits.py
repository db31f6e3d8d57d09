"""Places are counted exactly, whatever the order in which they are taken and given back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.errors import OverloadedError, RateLimitedError
from rtts.server.limits import Places, client_of

ADDRESSES = [
    "10.0.0.1",
    "10.0.0.2",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "2001:db8::2",
    "127.0.0.1",
    None,
]


@given(st.lists(st.tuples(st.sampled_from(ADDRESSES), st.booleans()), max_size=60))
def test_places_are_counted(steps):
    """Never more than `most`, never more than `most_per_client` of one client, none lost."""
    places, held = Places(most=6, most_per_client=2), []
    for address, takes in steps:
        if takes:
            same = sum(client_of(other) == client_of(address) for other, _ in held)
            limited = client_of(address) is not None and same >= 2
            if len(held) >= 6 or limited:
                error = OverloadedError if len(held) >= 6 else RateLimitedError
                with pytest.raises(error) as refused:
                    places.take(address)
                assert refused.value.retry_after_s
            else:
                held.append((address, places.take(address)))
        elif held:
            _, place = held.pop(0)
            place.give_back()
            place.give_back()
        assert places.taken == len(held)
    for _, place in held:
        place.give_back()
    assert places.taken == 0
    assert not places._by_client


def test_what_one_client_is():
    """IPv6 counts by /64, IPv4 in IPv6 as IPv4, this machine not at all."""
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:1") == "2001:db8::/64"
    assert client_of("2001:db8:0:1::1") != client_of("2001:db8::1")
    assert client_of("::ffff:10.1.2.3") == "10.1.2.3"
    assert client_of("127.0.0.1") is client_of("::1") is client_of(None) is client_of("") is None
