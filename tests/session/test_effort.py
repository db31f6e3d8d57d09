"""Opus' effort follows load: down at the limit, up only well below it, in running streams too."""

from __future__ import annotations

from rtts.audio.opus import Decoder
from rtts.protocol.audio_message import split_packets
from rtts.protocol.events import Audio, Text
from rtts.session.effort import SAVING_COMPLEXITY, OpusEffort
from rtts.session.service import Service
from tests.session.world import World


def test_effort_goes_down_at_the_limit_and_comes_back_later():
    """Saving begins with the first utterance too many and ends at 80 % of the limit."""
    effort = OpusEffort(5, 0.35 / 50 / 10)
    assert effort.max_live == 10
    levels = []
    for n_live in (1, 10, 11, 10, 9, 8, 10, 11):
        effort.follow(n_live)
        levels.append(effort.level)
    assert levels == [5, 5, 1, 1, 1, 5, 5, 1]
    assert effort.is_saving


def test_threads_raise_the_limit():
    """Several encoders carry more listeners, one carries no more than the loop does."""
    alone = OpusEffort(5, 150e-6)
    assert OpusEffort(5, 150e-6, threads=1).max_live == alone.max_live
    assert OpusEffort(5, 150e-6, threads=1).threads == 0
    assert OpusEffort(5, 150e-6, threads=8).max_live > 5 * alone.max_live


def test_listeners_count_until_they_have_heard_it():
    """An engine faster than speech is through with a reply at once; its listener still counts."""
    service = Service(epoch_s=0.0, effort=OpusEffort(5, 0.35 / 50 / 2))
    for now in (0.0, 1.0, 2.0):
        service.utterance_started(now)
        service.utterance_ended(now + 5.0, now)
    assert service.live_utterances == 0
    assert service.effort.is_saving
    service.utterance_started(7.5)
    assert not service.effort.is_saving


def test_effort_is_never_raised():
    """A configured complexity below the saving one stays as it is."""
    effort = OpusEffort(0, 1.0)
    effort.follow(1000)
    assert effort.level == 0
    assert not effort.is_saving


def test_a_running_stream_changes_its_effort_and_stays_decodable():
    """A stream encoded with two efforts decodes to the same number of samples."""
    world = World()
    world.service.effort = OpusEffort(10, 0.35 / 50)
    world.send(Text(ctx="a", text="A sentence that goes on for quite some time, you see. " * 4))
    world.advance(2)
    assert world.service.effort.level == 10
    world.send(Text(ctx="b", text="Another sentence. ", end=True, flush=True))
    assert world.service.effort.level == SAVING_COMPLEXITY
    world.send(Text(ctx="a", text="", end=True))
    world.advance(60)
    decoder = Decoder(24000, 1)
    decoded = b"".join(
        decoder.decode(packet)
        for message in world.of(Audio, "a")
        for packet in split_packets(message.data, message.npackets)
    )
    assert len(decoded) // 2 - 156 >= world.done("a").samples
