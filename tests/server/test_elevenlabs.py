"""ElevenLabs' surface on a real server: keys, refusals, shared places, and what leaving stops."""

from __future__ import annotations

import base64
import json

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rtts.engine.tone import ToneOptions
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready
from tests.server.test_foreign import metric, nothing_left
from tests.server.test_voice_http import is_of, serving
from tests.voices.sounds import file, hum

TEXT = "Hello there, this is a test. It goes on for a while. "
BASE = "/v1/text-to-speech/JBFqnCBsd6RMkjVDRZzb"
MULTI = BASE + "/multi-stream-input?output_format=pcm_24000&model_id=eleven_flash_v2_5"
SINGLE = BASE + "/stream-input?output_format=pcm_24000"
KEYS = {"api_keys": ("k-one",)}
KEY = {"xi-api-key": "k-one"}


def http(server, **rest) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.url, **rest)


def ws(server, path=MULTI, **rest):
    return connect("ws" + server.url.removeprefix("http") + path, **rest)


async def test_no_is_said_at_the_handshake():
    """A wrong key, a format nobody makes: a status and `detail`, and nothing was accepted."""
    async with ready(**KEYS) as server, http(server, headers=KEY) as client:
        with pytest.raises(InvalidStatus) as refused:
            await ws(server, additional_headers={"xi-api-key": "k-two"})
        assert refused.value.response.status_code == 401
        said = json.loads(refused.value.response.body)["detail"]
        assert said["status"] == "invalid_api_key" and said["message"]
        with pytest.raises(InvalidStatus) as refused:
            await ws(server, MULTI.replace("pcm_24000", "pcm_1"), additional_headers=KEY)
        assert refused.value.response.status_code == 400
        reply = await client.post(BASE, json={"text": "Hi."}, headers={"xi-api-key": "no"})
        assert reply.status_code == 401 and reply.json()["detail"]["status"] == "invalid_api_key"
        await nothing_left(server)


@pytest.mark.parametrize("path", [MULTI, SINGLE])
@pytest.mark.parametrize("shown", [{"xi-api-key": "k-one"}, {"authorization": "Bearer k-one"}])
async def test_a_key_in_the_first_message(path, shown):
    """Lets a client in that could set no header, and what came with it is said."""
    async with ready(**KEYS) as server:
        async with ws(server, path) as socket:
            await socket.send(json.dumps({"text": TEXT, **shown}))
            assert json.loads(await socket.recv())["audio"]
        for wrong in ({"xi-api-key": "k-two"}, {}):
            async with ws(server, path) as socket:
                await socket.send(json.dumps({"text": TEXT, **wrong}))
                assert json.loads(await socket.recv())["error"] == "invalid_api_key"
                with pytest.raises(ConnectionClosed) as closed:
                    await socket.recv()
                assert closed.value.rcvd.code == 1008
        async with ws(server, path + "&single_use_token=k-one") as socket:
            await socket.send(json.dumps({"text": TEXT}))
            assert json.loads(await socket.recv())["audio"]
        await nothing_left(server)


async def test_a_key_that_nobody_asked_for():
    """Where no key is needed, one in the first message changes nothing."""
    async with ready() as server, ws(server) as socket:
        await socket.send(json.dumps({"text": TEXT, "xi-api-key": "any"}))
        assert json.loads(await socket.recv())["audio"]


async def test_places_that_are_shared():
    """`/v1/models` and `/v1/voices` answer each kind of client in its own words."""
    async with ready() as server, http(server) as client:
        ours, theirs = await client.get("/v1/models"), await client.get("/v1/models", headers=KEY)
        assert ours.json()["object"] == "list" and theirs.json()[0]["model_id"]
        ours, theirs = await client.get("/v1/voices"), await client.get("/v1/voices", headers=KEY)
        assert "voice_id" not in ours.json()["voices"][0]
        for voice, same in zip(ours.json()["voices"], theirs.json()["voices"], strict=True):
            del voice["removable"]
            assert voice.items() <= same.items() and same["voice_id"] == voice["id"]
        name = theirs.json()["voices"][0]["id"]
        assert (await client.get(f"/v1/voices/{name}", headers=KEY)).json()["voice_id"] == name
        missing = await client.get("/v1/voices/nobody", headers=KEY)
        assert missing.json()["detail"]["status"] == "voice_not_found"


@pytest.mark.parametrize("path", [MULTI, SINGLE])
async def test_leaving_is_a_cancel(path):
    """A socket that goes away takes its speech with it."""
    tone = ToneOptions(real_time_factor=0.5)
    async with ready(InlineEngine(tone)) as server:
        async with ws(server, path) as socket:
            await socket.send(json.dumps({"text": TEXT * 20}))
            assert json.loads(await socket.recv())["audio"]
        await nothing_left(server)
        assert metric(server, "rtts_streams_total", outcome="cancelled") == 1


async def test_an_interruption_stops_the_engine_and_the_socket_goes_on():
    """`close_context` while text comes: `isFinal` at once, and the next context speaks."""
    async with (
        ready(InlineEngine(ToneOptions(real_time_factor=0.5))) as server,
        ws(server) as socket,
    ):
        await socket.send(json.dumps({"text": TEXT * 20, "context_id": "a"}))
        await socket.recv()
        await socket.send(json.dumps({"context_id": "a", "close_context": True}))
        frame = {}
        while not frame.get("isFinal"):
            frame = json.loads(await socket.recv())
        await eventually(lambda: server.service.live_utterances == 0)
        for message in ({"text": TEXT}, {"flush": True}, {"close_context": True}):
            await socket.send(json.dumps({"context_id": "b", **message}))
        heard, frame = b"", {}
        while not frame.get("isFinal"):
            frame = json.loads(await socket.recv())
            assert frame["contextId"] == "b"
            heard += base64.b64decode(frame["audio"] or "")
        assert len(heard) > 20_000
        await socket.send(json.dumps({"close_socket": True}))
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd.code == 1000


async def test_voices_are_added_and_removed(tmp_path):
    """As their SDKs do it; the new voice speaks under its id, and is gone after its removal."""
    form = {"name": "Ada", "labels": "null", "remove_background_noise": "false"}
    recording = {"files": ("ada.wav", file(hum(3.0, 330.0)))}
    async with serving(tmp_path) as (_, client):
        made = await client.post("/v1/voices/add", data=form, files=recording, headers=KEY)
        assert made.status_code == 200 and made.json()["requires_verification"] is False
        voice = made.json()["voice_id"]
        listed = (await client.get("/v1/voices", headers=KEY)).json()["voices"]
        assert ("Ada", "cloned") in [
            (each["name"], each["category"]) for each in listed if each["voice_id"] == voice
        ]
        path = f"/v1/text-to-speech/{voice}?output_format=pcm_24000"
        assert is_of((await client.post(path, json={"text": TEXT})).content, 330)
        refused = await client.post("/v1/voices/add", data=form, headers=KEY)
        assert refused.status_code == 400 and refused.json()["detail"]["message"]
        removed = await client.delete(f"/v1/voices/{voice}", headers=KEY)
        assert removed.status_code == 200 and removed.json() == {"status": "ok"}
        again = await client.delete(f"/v1/voices/{voice}", headers=KEY)
        assert again.status_code == 400 and again.json()["detail"]["status"] == "voice_not_found"
