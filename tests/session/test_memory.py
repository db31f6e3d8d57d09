"""What is finished is freed at once: nothing waits for the cycle collector."""

from __future__ import annotations

import gc
import weakref

import pytest

from rtts.protocol.events import Cancel, Text
from rtts.text import Splitter
from tests.session.world import World


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_session_that_is_forgotten_takes_its_contexts_along():
    """Contexts hold audio, an encoder and text; they go with the last reference to the session."""
    world = World()
    for name in "abc":
        world.say("Hello there, this is one. And **another** one, see. ", ctx=name)
        world.advance(10)
    world.send(Text(ctx="d", text="This one is cut off in the middle of it all. "), Cancel(ctx="d"))
    held = [weakref.ref(context) for context in world.session._roster.all()]
    held += [weakref.ref(context.speech) for context in world.session._roster.all()]
    held += [weakref.ref(world.session)]
    assert len(held) == 9
    world.session.detach(world.now, resumable=False)
    world.pump()
    del world.session
    assert [ref for ref in held if ref() is not None] == []


def text_objects():
    """Live objects of the text layer, by identity."""
    objects = gc.get_objects()
    return {id(o): type(o).__name__ for o in objects if is_of_text(type(o))}


def is_of_text(kind):
    module = kind.__dict__.get("__module__")
    return isinstance(module, str) and module.startswith("rtts.text")


@pytest.mark.usefixtures("no_collector")
def test_a_splitter_is_freed_at_once():
    """The text layer holds no cycles, whatever it has read."""
    before = text_objects()
    splitter = Splitter()
    splitter.feed(
        "# A list\n- [one](https://example.com/a) and `two` <br> **three**!\n\n| a | b |\n"
    )
    splitter.flush()
    assert text_objects().keys() - before.keys()
    del splitter
    assert [name for key, name in text_objects().items() if key not in before] == []
