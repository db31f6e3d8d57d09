"""Recordings of any kind become the same samples, and what cannot be a voice is told why."""

from __future__ import annotations

import contextlib
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.errors import BadRequestError
from rtts.voices.options import VoiceOptions
from rtts.voices.recording import RATE_HZ, read_recording
from tests.voices.sounds import file, hum, pitch_of

OPTIONS = VoiceOptions()


@pytest.mark.parametrize(
    ("kind", "subtype", "rate_hz", "channels"),
    [
        ("WAV", "PCM_16", 24_000, 1),
        ("WAV", "PCM_24", 44_100, 2),
        ("WAV", "FLOAT", 48_000, 2),
        ("WAV", "ULAW", 8_000, 1),
        ("FLAC", "PCM_16", 16_000, 1),
        ("OGG", "VORBIS", 44_100, 2),
        ("OGG", "OPUS", 48_000, 1),
        ("MP3", None, 44_100, 2),
        ("AIFF", "PCM_16", 22_050, 1),
    ],
)
def test_every_kind_of_file_is_the_same_voice(kind, subtype, rate_hz, channels):
    """The pitch, length and level of what is kept are those of what was sent."""
    data = file(hum(3.0, 330.0, rate_hz, channels=channels), rate_hz, kind, subtype)
    pcm = read_recording(data, "", OPTIONS)
    assert len(pcm) / 2 / RATE_HZ == pytest.approx(3.0, abs=0.08)
    assert pitch_of(pcm) == pytest.approx(330, abs=1)
    level = np.sqrt(np.mean((np.frombuffer(pcm, "<i2") / 32768) ** 2))
    assert level == pytest.approx(0.3 / np.sqrt(2), rel=0.1)


def test_samples_that_fit_are_kept_exactly():
    """A 24 kHz mono 16-bit WAV is not touched beyond the step of 16 bits."""
    sent = (np.random.default_rng(7).uniform(-0.9, 0.9, 2 * RATE_HZ)).astype(np.float32)
    pcm = read_recording(file(sent[:, None]), "", OPTIONS)
    assert np.abs(np.frombuffer(pcm, "<i2") / 32767 - sent).max() < 2 / 32767


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a recording"),
        (b"RIFF....WAVEnothing", "not a recording"),
        (b"\x00" * 5000, "not a recording"),
        (file(hum(0.4)), "lasts 0.40 s; at least 1 s"),
        (file(hum(31)), "lasts 31.0 s; at most 30 s"),
        (file(np.zeros((48_000, 1), np.float32)), "silent"),
        (file(hum(2, level=0.001)), "silent"),
        (file(np.full((48_000, 1), np.nan, np.float32), subtype="FLOAT"), "no numbers"),
    ],
)
def test_what_cannot_be_a_voice_is_told_why(data, why):
    """One typed error each, in words."""
    with pytest.raises(BadRequestError, match=why):
        read_recording(data, "", OPTIONS)


def test_an_hour_is_refused_without_reading_it():
    """A long file costs the memory of what is allowed, and a second more."""
    data = file(hum(1, 330, 8000).repeat(600, axis=0), 8000, "FLAC", "PCM_16")
    with pytest.raises(BadRequestError, match="at most 30 s"):
        read_recording(data, "", OPTIONS)


@pytest.mark.parametrize(
    ("transcript", "seconds", "is_taken"),
    [
        ("Hello there, how can I help you today?", 2.5, True),
        ("Hello there, how can I help you today?", 1.0, True),
        ("Hello.", 3.0, True),
        ("Hello.", 20.0, False),
        ("Hello there, how can I help you today? " * 20, 3.0, False),
        ("你好，今天有什么可以帮您的吗？", 3.0, True),
        ("你好，今天有什么可以帮您的吗？" * 10, 3.0, False),
        ("Guten Tag, wie kann ich Ihnen heute behilflich sein, mein Herr?", 5.0, True),
    ],
)
def test_a_transcript_has_to_fit_its_recording(transcript, seconds, is_taken):
    """As long as it takes to say, from hurried to slow; what cannot be said in the time is refused."""
    data = file(hum(seconds))
    if is_taken:
        read_recording(data, transcript, OPTIONS)
    else:
        with pytest.raises(BadRequestError, match="transcript"):
            read_recording(data, transcript, OPTIONS)


def test_without_soundfile_wav_is_read_and_the_rest_told(monkeypatch):
    """The error says which package reads more."""
    monkeypatch.setitem(sys.modules, "soundfile", None)
    assert read_recording(file(), "", OPTIONS)
    with pytest.raises(BadRequestError, match="package soundfile"):
        read_recording(file(kind="FLAC", subtype="PCM_16"), "", OPTIONS)


@settings(max_examples=60)
@given(st.binary(max_size=300), st.integers(0, 200))
def test_garbage_never_raises_anything_else(tail, cut):
    """Whatever bytes come, also a damaged real file: samples, or the typed error."""
    data = file(hum(1.2))
    for given_ in (tail, data[:cut] + tail + data[cut + len(tail) :]):
        with contextlib.suppress(BadRequestError):
            read_recording(given_, "", OPTIONS)
