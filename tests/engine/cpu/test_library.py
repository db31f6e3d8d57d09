import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.library import VoiceLibrary, VoiceSource
from rtts.engine.cpu.options import CpuOptions
from tests.engine.cpu.fakes import FakeVoice, library

NAMES = ("a", "b", "c", "d")


@given(
    uses=st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=30),
    room=st.integers(1, 4),
)
def test_the_least_recently_used_goes(uses: list[tuple[str, bool]], room: int) -> None:
    """Of unpinned voices the most recently used stay, as many as there is room; pinned ones all."""
    voices = library(dict.fromkeys(NAMES, FakeVoice), CpuOptions(voice_cache=room))
    held: list[str] = []
    pinned: set[str] = set()
    for name, pin in uses:
        _, is_cached, evicted = voices.load(name, pinned=pin)
        assert is_cached == (name in held)
        held = [*(each for each in held if each != name), name]
        if pin:
            pinned.add(name)
        expected = []
        while len(held) > room:
            free = [each for each in held if each not in pinned and each != name]
            if not free or is_cached:
                break
            held.remove(free[0])
            expected.append(free[0])
        assert evicted == tuple(expected)
        assert [each for each in NAMES if voices.get(each)] == sorted(held)
        held = sorted(held, key=lambda each: voices._held[each].used)


def test_memory_counts_a_shared_model_once() -> None:
    """A model is counted while one of its voices is held, and released with the last."""
    released: list[str] = []
    sources = {
        name: VoiceSource(
            FakeVoice,
            "en",
            weight_mb=1.0,
            model="big" if name in "ab" else "",
            model_mb=600.0 if name in "ab" else 0.0,
            release_model=(lambda: released.append("big")) if name in "ab" else None,
        )
        for name in NAMES
    }
    voices = VoiceLibrary(sources, CpuOptions(voice_cache_mb=602))
    assert voices.load("a")[2] == ()
    assert voices.load("b")[2] == ()
    assert voices.load("c")[2] == ("a",)
    assert not released
    assert voices.load("d")[2] == ("b",)
    assert released == ["big"]


def test_loading_speaks_once() -> None:
    """A voice that was loaded has spoken, so that nothing lazy is left."""
    voice = FakeVoice()
    voices = library({"a": lambda: voice})
    voices.load("a")
    voices.load("a")
    assert len(voice.texts) == 1


def test_a_failure_leaves_nothing_behind() -> None:
    """A voice that could not be loaded is not held, and may be tried again."""

    def broken() -> FakeVoice:
        raise OSError("no such file")

    voices = library({"a": broken})
    for _ in range(2):
        with pytest.raises(OSError, match="no such file"):
            voices.load("a")
    assert voices.get("a") is None


def test_the_lock_is_held_while_loading() -> None:
    """Two cores on two threads do not load one voice twice."""
    held: list[str] = []

    def load() -> FakeVoice:
        assert held[-1] == "taken"
        return FakeVoice()

    class Lock:
        def __enter__(self) -> None:
            held.append("taken")

        def __exit__(self, *error: object) -> None:
            held.append("given back")

    voices = VoiceLibrary({"a": VoiceSource(load, "en", 1.0)}, CpuOptions(), Lock())
    voices.load("a")
    assert held == ["taken", "given back"]
