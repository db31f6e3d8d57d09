"""Deepgram's and DashScope's surfaces on a real server: keys, refusals, and what leaving stops."""

from __future__ import annotations

import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rtts.engine.tone import ToneOptions
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready
from tests.server.test_foreign import metric, nothing_left

TEXT = "Hello there, this is a test. It goes on for a while. "
V1 = "/v1/speak?model=aura-2-thalia-en&encoding=linear16&sample_rate=24000"
V2 = "/v2/speak?model=flux-alexis-en"
QWEN = "/api-ws/v1/realtime?model=qwen3-tts-flash-realtime"
KEYS = {"api_keys": ("k-one",)}
SLOW = ToneOptions(real_time_factor=0.5)
SAY = {
    V1: {"type": "Speak", "text": TEXT * 20},
    V2: {"type": "Speak", "text": TEXT * 20},
    QWEN: {"type": "input_text_buffer.append", "text": TEXT * 20},
}
STOP = {
    V1: ({"type": "Clear"}, "Cleared"),
    V2: ({"type": "Interrupt"}, "SpeechInterrupted"),
    QWEN: ({"type": "input_text_buffer.clear"}, "input_text_buffer.cleared"),
}


def ws(server, path, **rest):
    return connect("ws" + server.url.removeprefix("http") + path, **rest)


def is_audio(message) -> bool:
    return isinstance(message, bytes) or "audio.delta" in message[:100]


@pytest.mark.parametrize("path", SAY)
async def test_no_is_said_at_the_handshake(path):
    """A wrong key, or none: 401, in the surface's words, and nothing was accepted."""
    async with ready(**KEYS) as server:
        for headers in ({"authorization": "Token k-two"}, {}):
            with pytest.raises(InvalidStatus) as refused:
                await ws(server, path, additional_headers=headers)
            response = refused.value.response
            body = json.loads(response.body)
            assert response.status_code == 401 and len(body["request_id"]) == 36
            if path != QWEN:
                assert response.headers["dg-request-id"] == body["request_id"]
                assert response.headers["dg-error"] == body["err_msg"]
        await nothing_left(server)


@pytest.mark.parametrize("scheme", ["Token", "token", "Bearer"])
async def test_keys_in_the_header(scheme):
    """In any spelling; the answer says which request it is."""
    async with ready(**KEYS) as server:
        headers = {"authorization": f"{scheme} k-one"}
        async with ws(server, V1, additional_headers=headers) as socket:
            metadata = json.loads(await socket.recv())
            assert socket.response.headers["dg-request-id"] == metadata["request_id"]


@pytest.mark.parametrize(
    "offered", [["token", "k-one"], ["x-deepgram-session-id", "5", "bearer", "k-one"]]
)
async def test_keys_among_the_subprotocols(offered):
    """The scheme is selected, and the key is not sent back."""
    async with ready(**KEYS) as server, ws(server, V2, subprotocols=offered) as socket:
        assert socket.subprotocol == offered[-2]
        assert "k-one" not in str(socket.response.headers)
        assert json.loads(await socket.recv())["type"] == "Connected"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        (V1 + "&encoding=mp3", "UNSUPPORTED_AUDIO_FORMAT"),
        (V1 + "&speed=7", "INVALID_QUERY_PARAMETER"),
        (V2.replace("flux-alexis-en", "nobody"), "INVALID_QUERY_PARAMETER"),
    ],
)
async def test_a_wrong_query(path, code):
    """400 with the API's code."""
    async with ready() as server:
        with pytest.raises(InvalidStatus) as refused:
            await ws(server, path)
        assert refused.value.response.status_code == 400
        assert json.loads(refused.value.response.body)["err_code"] == code


@pytest.mark.parametrize("path", SAY)
async def test_leaving_is_a_cancel(path):
    """A socket that goes away takes its speech with it."""
    async with ready(InlineEngine(SLOW)) as server:
        async with ws(server, path) as socket:
            await socket.send(json.dumps(SAY[path]))
            while not is_audio(await socket.recv()):
                pass
        await nothing_left(server)
        assert metric(server, "rtts_streams_total", outcome="cancelled") == 1


@pytest.mark.parametrize("path", SAY)
async def test_an_interruption_stops_the_engine_and_the_socket_goes_on(path):
    """Nothing old follows its answer, and what is said next is spoken."""
    stop, answer = STOP[path]
    async with ready(InlineEngine(SLOW)) as server, ws(server, path) as socket:
        await socket.send(json.dumps(SAY[path]))
        while not is_audio(await socket.recv()):
            pass
        await socket.send(json.dumps(stop))
        message: str | bytes = b""
        while isinstance(message, bytes) or json.loads(message)["type"] != answer:
            message = await socket.recv()
        await eventually(lambda: server.service.live_utterances == 0)
        await socket.send(json.dumps(SAY[path] | {"text": "Hi. "}))
        message = await socket.recv()
        kind = "" if isinstance(message, bytes) else json.loads(message)["type"]
        assert kind in ("", "SpeechStarted", "response.created")
        while not is_audio(message):
            message = await socket.recv()


async def test_a_request_that_is_dropped():
    """Is cancelled, too."""
    async with (
        ready(InlineEngine(SLOW)) as server,
        httpx.AsyncClient(base_url=server.url) as client,
    ):
        query = "/v1/speak?encoding=linear16&container=none"
        async with client.stream("POST", query, json={"text": TEXT * 20}) as response:
            assert response.status_code == 200 and len(response.headers["dg-request-id"]) == 36
            async for _ in response.aiter_raw():
                break
        await nothing_left(server)
        assert metric(server, "rtts_streams_total", outcome="cancelled") == 1


async def test_binary_frames_are_refused():
    """There are none from clients in any of the protocols."""
    async with ready() as server, ws(server, V1) as socket:
        await socket.send(b"RIFF")
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                await socket.recv()
        assert closed.value.rcvd.code == 1003
