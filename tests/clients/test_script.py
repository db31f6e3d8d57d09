from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rtts_client.script import MERGE_CHARS, Script

LIMIT = 40

SAYS = st.lists(
    st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["<flush>", "<send>"]),
    max_size=12,
)
# What happens to each message on the way: it arrives, the socket is lost before or after it
# arrives, or the server is full.
FATES = st.lists(st.sampled_from(["arrives", "lost", "arrives and lost", "full"]), max_size=20)


class Server:
    """Takes numbered texts as rtts.v1 says: in order, once, without gaps."""

    def __init__(self) -> None:
        self.next_n = 0
        self.taken: list[str] = []
        self.has_ended = False

    def take(self, message: dict[str, Any]) -> None:
        if message["n"] < self.next_n:
            return
        assert message["n"] == self.next_n, "a gap"
        assert not self.has_ended
        self.next_n += 1
        self.taken.append(message["text"])
        if message.get("flush"):
            self.taken.append("<flush>")
        self.has_ended = message.get("end", False)


def deliver(script: Script, server: Server, fates: list[str]) -> None:
    """Send all there is, through whatever happens."""
    while True:
        sent, _ = script.next_message(LIMIT, is_forced=True)
        if sent is None:
            return
        message = json.loads(sent)
        fate = fates.pop(0) if fates else "arrives"
        if fate in ("arrives", "arrives and lost"):
            server.take(message)
        if fate == "full":
            assert script.take_back(message["id"])
        elif fate != "arrives":
            script.rewind(server.next_n)


@given(SAYS, FATES)
def test_everything_arrives_once_and_in_order(says: list[str], fates: list[str]) -> None:
    """Whatever is lost, refused or repeated: the server has all text, flushes and the end once."""
    script, server = Script("c", keeps_pieces=False), Server()
    fates = list(fates)
    for text in says:
        if text == "<flush>":
            script.flush()
        elif text == "<send>":
            deliver(script, server, fates)
        else:
            script.say(text, LIMIT)
    script.end()
    deliver(script, server, fates)
    expected = "".join(text for text in says if text != "<send>")
    assert "".join(server.taken) == expected
    assert server.has_ended
    assert script.text == expected.replace("<flush>", "")
    assert script.n_chars == len(script.text)


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=90)), st.integers(1, 8000))
def test_no_message_is_longer_than_the_server_takes(texts: list[str], limit: int) -> None:
    """Long text is cut, short text is merged."""
    script = Script("c", keeps_pieces=False)
    for text in texts:
        script.say(text, limit)
    most = max(1, min(MERGE_CHARS, limit // 4))
    lengths = []
    while (sent := script.next_message(limit, is_forced=True)[0]) is not None:
        lengths.append(len(json.loads(sent)["text"]))
    assert all(length <= most for length in lengths)
    assert len(lengths) <= 1 + 2 * sum(len(text) for text in texts) / most


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=50)))
def test_pieces_are_kept(texts: list[str]) -> None:
    """Where a message is a finished piece, each stays one."""
    script = Script("c", keeps_pieces=True)
    for text in texts:
        script.say(text, 4000)
    sent = []
    while (message := script.next_message(10**9)[0]) is not None:
        sent.append(json.loads(message)["text"])
    assert sent == texts


@given(st.text(st.characters(codec="utf-8"), max_size=20), st.lists(st.integers(0, 40)))
def test_text_cut_in_utf16_units_is_joined(text: str, cuts: list[int]) -> None:
    """Cut anywhere in UTF-16, as JavaScript does, whole characters come out."""
    units = text.encode("utf-16-le")
    places = sorted({min(2 * cut, len(units)) for cut in cuts} | {0, len(units)})
    script = Script("c", keeps_pieces=False)
    for start, end in zip(places, places[1:], strict=False):
        script.say(units[start:end].decode("utf-16-le", "surrogatepass"), LIMIT)
    script.end()
    assert script.text == text


def test_text_waits_for_room() -> None:
    """The server never has more than its limit unspoken, unless forced."""
    script = Script("c", keeps_pieces=True)
    for _ in range(3):
        script.say("x" * 20, LIMIT)
    assert script.next_message(LIMIT)[0] and script.next_message(LIMIT)[0]
    assert script.next_message(LIMIT) == (None, True)
    assert script.spoken(19) and script.next_message(LIMIT) == (None, True)
    assert script.spoken(20) and not script.spoken(20)
    assert script.next_message(LIMIT)[0]
    assert script.next_message(LIMIT) == (None, False)


def test_what_was_refused_as_a_gap_is_known() -> None:
    """Only texts behind one that was taken back are; foreign refs are not."""
    script = Script("c", keeps_pieces=True)
    for _ in range(3):
        script.say("x", LIMIT)
        script.next_message(LIMIT)
    assert not script.was_taken_back("n2")
    assert script.take_back("n1")
    assert script.was_taken_back("n2") and script.was_taken_back("n1")
    assert not script.was_taken_back("n0")
    for ref in (None, "", "m1", "n", "nx"):
        assert not script.take_back(ref) and not script.was_taken_back(ref)


def test_nothing_follows_the_end() -> None:
    """Text after `end` raises; a second end is ignored."""
    script = Script("c", keeps_pieces=False)
    script.end()
    script.end()
    with pytest.raises(ValueError, match="has ended"):
        script.say("x", LIMIT)
    assert script.next_message(LIMIT)[0] and script.next_message(LIMIT) == (None, False)
