"""The store survives restarts and damage, and the same voice is the same voice."""

from __future__ import annotations

import json

import pytest

from rtts.errors import BadRequestError, OverloadedError, UnsupportedError
from rtts.voices.recording import RATE_HZ
from rtts.voices.store import VoiceStore
from tests.voices.sounds import hum

PCM = (hum() * 32767).astype("<i2").tobytes()
WHEN = "2026-11-30T12:00:00Z"


def clone(store, name="Ada", **changes):
    fields = {"kind": "clone", "language": "en", "transcript": "Hello there.", "pcm": PCM}
    return store.add(name=name, created=WHEN, most=10, **(fields | changes))


def test_what_is_kept_is_there_after_a_restart(tmp_path):
    """A new store of the folder has the same voices, in the order they came."""
    store = VoiceStore(tmp_path / "voices")
    first = clone(store)
    second = store.add(
        name="Low", kind="design", language="", description="a low voice",
        created="2026-12-01T00:00:00Z", most=10,
    )  # fmt: skip
    again = VoiceStore(tmp_path / "voices")
    assert list(again.voices.values()) == [first, second] and not again.damaged
    assert again.reference(first.id).read_bytes()[44:] == PCM
    assert first.seconds == len(PCM) / 2 / RATE_HZ


def test_an_id_is_what_makes_the_voice(tmp_path):
    """The same recording and words again is the one there is; other words or samples are another."""
    store = VoiceStore(tmp_path)
    first = clone(store)
    assert clone(store, name="Other") is first
    ids = {
        first.id,
        clone(store, "B", transcript="Hello you.").id,
        clone(store, "C", language="de").id,
        clone(store, "D", pcm=PCM[:-2] + b"\1\0").id,
        store.add(name="E", kind="design", language="en", description="Hello there.", created=WHEN, most=9).id,
    }  # fmt: skip
    assert len(ids) == 5
    assert VoiceStore(tmp_path / "elsewhere").voices == {}


def test_a_name_is_one_voices(tmp_path):
    """Whatever its case; after removal it is free again."""
    store = VoiceStore(tmp_path)
    first = clone(store)
    with pytest.raises(BadRequestError, match="name"):
        clone(store, "ADA", transcript="another")
    store.remove(first.id)
    assert clone(store, "ADA", transcript="another").name == "ADA"
    with pytest.raises(KeyError):
        store.remove(first.id)


def test_removed_is_removed(tmp_path):
    """Nothing of it stays in the folder, what an engine made of it included."""
    store = VoiceStore(tmp_path)
    voice = clone(store)
    store.made(voice.id, "engine").write_bytes(b"made")
    store.remove(voice.id)
    assert list(tmp_path.iterdir()) == [] and VoiceStore(tmp_path).voices == {}


def _cut_json(folder):
    (folder / "voice.json").write_text('{"id": ')


def _other_sound(folder):
    wav = folder / "reference.wav"
    wav.write_bytes(wav.read_bytes()[:-1] + b"\x55")


def _no_sound(folder):
    (folder / "reference.wav").unlink()


def _other_words(folder):
    fields = json.loads((folder / "voice.json").read_text())
    (folder / "voice.json").write_text(json.dumps(fields | {"transcript": "Give me your money."}))


def _more_fields(folder):
    fields = json.loads((folder / "voice.json").read_text())
    (folder / "voice.json").write_text(json.dumps(fields | {"x": 1}))


@pytest.mark.parametrize("damage", [_cut_json, _other_sound, _no_sound, _other_words, _more_fields])
def test_a_damaged_voice_is_left_out_and_the_rest_stays(tmp_path, damage):
    """It is told, costs nobody else, and may be brought again."""
    store = VoiceStore(tmp_path)
    good, bad = clone(store), clone(store, "Bad", transcript="Something else.")
    damage(tmp_path / bad.id)
    again = VoiceStore(tmp_path)
    assert set(again.voices) == {good.id} and set(again.damaged) == {bad.id}
    assert clone(again, "Bad", transcript="Something else.").id == bad.id
    assert not again.damaged and not VoiceStore(tmp_path).damaged


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    """A voice appears whole or not at all."""
    store = VoiceStore(tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rtts.voices.store.os.replace", full)
    with pytest.raises(OSError, match="No space"):
        clone(store)
    assert not store.voices and list(tmp_path.iterdir()) == []


def test_there_is_a_most_and_a_folder(tmp_path):
    """More than allowed are refused, as is everything without a folder."""
    store = VoiceStore(tmp_path)
    store.add(name="a", kind="design", language="", description="x", created=WHEN, most=1)
    with pytest.raises(OverloadedError):
        store.add(name="b", kind="design", language="", description="y", created=WHEN, most=1)
    with pytest.raises(UnsupportedError, match="voices.dir"):
        clone(VoiceStore(None))
