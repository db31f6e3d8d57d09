"""vLLM-Omni's speech stream has no SDK: its clients are some lines on a WebSocket library."""

from __future__ import annotations

import json

import numpy as np
import pytest
from websockets.sync.client import connect

from rtts.audio.wav import read_wav
from tests.e2e.sdk.conftest import KEY, LONG, TEXT

MAX_ERRORS = 0.1  # of 15 words, one


def socket(server):
    headers = {"authorization": f"Bearer {KEY}"}
    return connect(server.ws_url + "/v1/audio/speech/stream", additional_headers=headers)


def say(ws, words: str, **config) -> list:
    """One utterance, word by word; everything up to its `session.done`."""
    ws.send(json.dumps({"type": "session.config", "voice": "Vivian", **config}))
    for word in words.split():
        ws.send(json.dumps({"type": "input.text", "text": word + " "}))
    ws.send(json.dumps({"type": "input.done"}))
    heard = []
    while not heard or isinstance(heard[-1], bytes) or heard[-1]["type"] != "session.done":
        message = ws.recv(timeout=20)
        heard.append(message if isinstance(message, bytes) else json.loads(message))
    return heard


def test_a_client_of_theirs(server, ears):
    """Utterances in a row on one socket, whole and by sentence, and what leaving stops."""
    before = server.cancelled()
    with socket(server) as ws:
        heard = say(ws, TEXT)
        [file] = [each for each in heard if isinstance(each, bytes)]
        samples = np.frombuffer(read_wav(file).pcm, "<i2").astype(np.float32) / 32768
        assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
        heard = say(
            ws, TEXT, response_format="pcm", stream_audio=True, split_granularity="sentence"
        )
        pieces = [each for each in heard if isinstance(each, bytes)]
        assert len(pieces) > 10 and heard[0]["type"] == "audio.start"
        assert heard[-1]["utterance_index"] == 1 and heard[-1]["total_sentences"] >= 2
        length_s = sum(map(len, pieces)) / 48_000
        assert length_s == pytest.approx(len(samples) / 24_000, rel=0.2)
        ws.send(json.dumps({"type": "input.text", "text": LONG}))
        ws.send(json.dumps({"type": "input.done"}))
        while not isinstance(ws.recv(timeout=5), bytes):
            pass
    assert server.is_quiet() and server.cancelled() == before + 1
