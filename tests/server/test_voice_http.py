"""Voices over HTTP: brought, listed, spoken with on every surface, warmed, removed, and kept."""

from __future__ import annotations

import asyncio
import contextlib
import json

import httpx
import pytest
from websockets.asyncio.client import connect

from rtts.engine.hosting import Backoff
from rtts.engine.local import LocalEngine
from rtts.engine.tone import ToneEngine, ToneOptions
from rtts.protocol.audio_message import unpack_audio
from rtts.server import ServerOptions, running_server
from rtts.server.voice_making import CommandMaker
from rtts.voices.options import VoiceOptions
from tests.server.raw import eventually
from tests.voices.sounds import file, hum, pitch_of

TEXT = "Hello there, this is a test. "


@contextlib.asynccontextmanager
async def serving(folder, *, tone=None, maker=None, voices=None, **options):
    tone_options = ToneOptions(**({"clones": True} if tone is None else tone))
    engine = LocalEngine(lambda: ToneEngine(tone_options), backoff=Backoff(0.05, 0.2))
    made = ServerOptions(port=0, **options)
    voice_options = voices or VoiceOptions(dir=folder)
    async with (
        running_server(made, engine, voices=voice_options, voice_maker=maker) as server,
        httpx.AsyncClient(base_url=server.url, timeout=20) as client,
    ):
        yield server, client


def upload(client, name="Ada", data=None, **fields):
    recording = ("ada.wav", file(hum(3.0, 330.0)) if data is None else data)
    return client.post("/v1/voices", data={"name": name, **fields}, files={"audio": recording})


async def spoken(server, voice, text=TEXT):
    """PCM of a reply on rtts.v1."""
    pcm = b""
    async with connect(server.ws_url, subprotocols=["rtts.v1"]) as ws:
        start = {"type": "start", "ctx": "c", "voice": voice, "format": {"codec": "pcm_s16le"}}
        await ws.send(json.dumps(start))
        await ws.send(json.dumps({"type": "text", "ctx": "c", "text": text, "end": True}))
        async for message in ws:
            if isinstance(message, bytes):
                pcm += unpack_audio(message).data
            elif json.loads(message)["type"] == "error":
                raise AssertionError(message)
            elif json.loads(message)["type"] == "done":
                return pcm
    raise AssertionError("no done")


def is_of(pcm, base_hz):
    """Whether a reply is sung on a note of that voice's scale."""
    notes = [base_hz * 2 ** (n / 12) for n in (0, 2, 4, 5, 7, 9, 11, 12)]
    heard = pitch_of(pcm)
    return min(abs(heard - note) for note in notes) < 3


async def test_a_recording_becomes_a_voice_everywhere(tmp_path):
    """201, listed natively and by OpenAI's surface, spoken by id and by name on both; sounds like it."""
    async with serving(tmp_path) as (server, client):
        made = await upload(client, transcript="Hello there, hello there.", language="English")
        assert made.status_code == 201, made.text
        voice = made.json()
        assert voice["name"] == "Ada" and voice["kind"] == "clone" and voice["removable"] is True
        assert voice["languages"][0] == "en" and voice["seconds"] == 3.0
        listed = (await client.get("/v1/voices")).json()["voices"]
        assert [v["id"] for v in listed if v["removable"]] == [voice["id"]]
        assert (await client.get(f"/v1/voices/{voice['id']}")).json() == voice
        assert (await client.get("/v1/voices/Ada")).json() == voice
        names = (await client.get("/v1/audio/voices")).text
        assert voice["id"] in names
        assert is_of(await spoken(server, voice["id"]), 330)
        assert is_of(await spoken(server, "Ada"), 330)
        for name in (voice["id"], "ada"):
            asked = {"model": "x", "input": TEXT, "voice": name, "response_format": "pcm"}
            answer = await client.post("/v1/audio/speech", json=asked)
            assert answer.status_code == 200 and is_of(answer.content, 330)


async def test_a_description_becomes_a_voice(tmp_path):
    """JSON with a description; the same one again is the same voice, and is not new."""
    asked = {"name": "Deep", "description": "a deep and slow voice"}
    async with serving(tmp_path) as (server, client):
        made = await client.post("/v1/voices", json=asked)
        assert made.status_code == 201 and made.json()["kind"] == "design"
        again = await client.post("/v1/voices", json=asked)
        assert again.status_code == 200 and again.json() == made.json()
        assert await spoken(server, "Deep")


async def test_voices_survive_a_restart_of_server_and_engine(tmp_path):
    """A new server on the folder has them; a dead engine has them again."""
    async with serving(tmp_path) as (_, client):
        voice = (await upload(client)).json()
        low = (await upload(client, "Low", file(hum(2, 150.0)))).json()
    async with serving(tmp_path) as (server, client):
        listed = (await client.get("/v1/voices")).json()["voices"]
        assert [v["id"] for v in listed if v["removable"]] == [voice["id"], low["id"]]
        assert is_of(await spoken(server, "Low"), 150)
    dying = {"clones": True, "die_after_chunks": 60}
    async with serving(tmp_path, tone=dying) as (server, client):
        with contextlib.suppress(AssertionError):
            await spoken(server, "tone", TEXT * 40)
        await eventually(lambda: server.metrics.registry.get_sample_value("rtts_engine_restarts_total"), 5)  # fmt: skip
        await eventually(lambda: server.is_ready, 5)
        assert is_of(await spoken(server, "Ada"), 330)


async def test_removed_is_gone_at_once(tmp_path):
    """204; then unknown to every surface, and the second time 404; what it was saying it finishes."""
    async with serving(tmp_path) as (server, client):
        voice = (await upload(client)).json()
        long = asyncio.create_task(spoken(server, "Ada", TEXT * 4))
        await asyncio.sleep(0.05)
        assert (await client.delete(f"/v1/voices/{voice['id']}")).status_code == 204
        assert await long
        assert (await client.delete(f"/v1/voices/{voice['id']}")).status_code == 404
        assert (await client.get("/v1/voices/Ada")).status_code == 404
        with pytest.raises(AssertionError, match="unknown_voice"):
            await spoken(server, "Ada")
        refused = await client.delete("/v1/voices/tone")
        assert refused.status_code == 400 and "model's own" in refused.text
    assert list(tmp_path.iterdir()) == []


async def test_removed_while_it_is_made_stays_removed(tmp_path):
    """Who removes a voice before it is ready does not find it again; the same upload works then."""
    async with serving(tmp_path, tone={"clones": True, "voice_load_s": 0.5}) as (server, client):
        adding = asyncio.create_task(upload(client))
        await eventually(lambda: any(tmp_path.glob("voice-*")))
        assert (await client.delete("/v1/voices/Ada")).status_code == 204
        answer = await adding
        assert answer.status_code == 400 and "removed" in answer.json()["error"]["message"]
        listed = (await client.get("/v1/voices")).json()["voices"]
        assert not any(voice["removable"] for voice in listed)
        assert (await upload(client)).status_code == 201
        assert is_of(await spoken(server, "Ada"), 330.0)


async def test_prewarm_says_how_long_it_took(tmp_path):
    """A cold voice takes its time, a warm one none; an unknown one is 404."""
    async with serving(tmp_path, tone={"clones": True, "voice_load_s": 0.05}) as (_, client):
        await upload(client)
        assert (await client.post("/v1/voices/Ada/prewarm")).json() == {"load_ms": 0.0}
        cold = await client.post("/v1/voices/tone-low/prewarm")
        assert cold.json() == {"load_ms": 50.0}
        assert (await client.post("/v1/voices/nobody/prewarm")).status_code == 404


@pytest.mark.parametrize("kind", ["clone", "design"])
async def test_an_engine_that_cannot_says_so(tmp_path, kind):
    """501 and the code `unsupported`, before anything is kept."""
    async with serving(tmp_path / "v", tone={}) as (_, client):
        if kind == "clone":
            answer = await upload(client)
        else:
            answer = await client.post("/v1/voices", json={"name": "x", "description": "deep"})
        assert answer.status_code == 501
        assert answer.json()["error"]["code"] == "unsupported"
        assert not (tmp_path / "v").exists()


@pytest.mark.parametrize(
    ("fields", "data", "status", "why"),
    [
        ({}, b"nothing", 400, "MP3): Format not recognised"),
        ({}, file(hum(0.2)), 400, "at least 1 s"),
        ({"name": ""}, None, 400, "name"),
        ({"name": "a\nb"}, None, 400, "control"),
        ({"name": "a/b"}, None, 400, "slash"),
        ({"name": ".."}, None, 400, "address"),
        ({"name": "x" * 65}, None, 400, "name"),
        ({"name": "tone"}, None, 400, "voice of the model"),
        ({"language": "klingon"}, None, 400, "language"),
        ({"language": "sv"}, None, 400, "language"),
        ({"transcript": "word " * 200}, None, 400, "transcript"),
        ({}, b"\0" * 1_200_000, 413, "at most 1 MB"),
    ],
)
async def test_what_cannot_be_a_voice_is_refused_and_not_kept(tmp_path, fields, data, status, why):
    """A typed error that names the field; the folder stays empty, the next upload works."""
    options = VoiceOptions(dir=tmp_path, max_upload_mb=1)
    async with serving(tmp_path, voices=options) as (_, client):
        answer = await upload(client, data=data, **({"name": "Ada"} | fields))
        assert answer.status_code == status and why in answer.json()["error"]["message"]
        assert list(tmp_path.iterdir()) == []
        assert (await upload(client)).status_code == 201


async def test_requests_of_the_wrong_shape(tmp_path):
    """No file, no form, no JSON, another content type, a body that is cut: each a typed answer."""
    async with serving(tmp_path) as (_, client):
        assert (await client.post("/v1/voices", data={"name": "x"})).status_code == 415
        empty = await client.post("/v1/voices", files={"name": (None, "x")})
        assert empty.status_code == 400 and "no file" in empty.text
        for body in (b"{", b"[]", b'{"name": 3}', b'{"name":"x"}'):
            answer = await client.post(
                "/v1/voices", content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 400 and answer.json()["error"]["code"] == "bad_request"
        broken = await client.post(
            "/v1/voices", content=b"--x\r\nhm", headers={"content-type": "multipart/form-data"}
        )
        assert broken.status_code == 400


async def test_a_streamed_upload_stops_at_the_limit(tmp_path):
    """Without a length announced no more is read than the limit."""
    sent = 0

    async def endless():
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="audio"; filename="a"\r\n\r\n'
        while sent < 50_000_000:
            sent += 65_536
            yield b"\0" * 65_536

    async with serving(tmp_path, voices=VoiceOptions(dir=tmp_path, max_upload_mb=1)) as (_, client):
        headers = {"content-type": "multipart/form-data; boundary=x"}
        with contextlib.suppress(httpx.WriteError, httpx.ReadError):
            answer = await client.post("/v1/voices", content=endless(), headers=headers)
            assert answer.status_code == 413
        assert sent < 20_000_000


async def test_keys_guard_voices(tmp_path):
    """Without the key nothing is listed, added or removed."""
    async with serving(tmp_path, api_keys=("secret",)) as (_, client):
        for method, path in (
            ("GET", "/v1/voices"), ("POST", "/v1/voices"), ("DELETE", "/v1/voices/x"),
            ("POST", "/v1/voices/x/prewarm"),
        ):  # fmt: skip
            assert (await client.request(method, path)).status_code == 401


async def test_uploads_at_once_and_too_many(tmp_path):
    """Twenty at once are twenty voices; one more than allowed is refused as overloaded."""
    async with serving(tmp_path, voices=VoiceOptions(dir=tmp_path, max_voices=20)) as (_, client):
        answers = await asyncio.gather(
            *(upload(client, f"v{n}", file(hum(1.1, 200.0 + n))) for n in range(20))
        )
        assert [a.status_code for a in answers] == [201] * 20
        assert (await upload(client, "more", file(hum(1.5, 777.0)))).status_code == 503


MAKER = """
import json, sys, shutil
asked = json.loads(sys.stdin.read())
if "refuse" in asked["transcript"]: sys.exit((sys.stderr.write("it is a duck\\n"), 3)[1])
if "break" in asked["transcript"]: raise SystemExit("no memory")
shutil.copyfile(asked["reference"], asked["made"])
"""


async def test_what_was_made_is_made_again_when_damaged_or_of_another_model(tmp_path):
    """A damaged file, and another fingerprint, cost a second making and not the voice."""
    import sys

    def maker(fingerprint="a"):
        return CommandMaker([sys.executable, "-c", MAKER], fingerprint)

    async with serving(tmp_path, maker=maker()) as (_, client):
        voice = (await upload(client)).json()
    (made,) = (tmp_path / voice["id"]).glob("made-*.bin")
    made.write_bytes(b"damaged")
    async with serving(tmp_path, maker=maker()) as (server, client):
        await eventually(lambda: server.service.capabilities.voice("Ada"), 10)
        await eventually(lambda: not server._desk.troubles, 10)
        assert is_of(await spoken(server, "Ada"), 330)
    assert made.read_bytes()[:4] == b"RIFF"
    async with serving(tmp_path, maker=maker("another")) as (server, client):
        await eventually(lambda: server.service.capabilities.voice("Ada"), 10)
        assert is_of(await spoken(server, "Ada"), 330)
    assert len(list((tmp_path / voice["id"]).glob("made-*.bin"))) == 2


async def test_a_maker_that_fails_keeps_nothing(tmp_path):
    """A recording it refuses is the sender's mistake, a crash is not; both leave the folder empty."""
    import sys

    maker = CommandMaker([sys.executable, "-c", MAKER], "a")
    async with serving(tmp_path, maker=maker) as (_, client):
        refused = await upload(client, transcript="Please refuse this now.")
        assert refused.status_code == 400 and "it is a duck" in refused.text
        broken = await upload(client, transcript="Please break this now.")
        assert broken.status_code == 500 and "no memory" in broken.text
        assert list(tmp_path.iterdir()) == []


async def test_a_damaged_voice_is_told_and_costs_nobody_else(tmp_path):
    """/readyz names it; the others speak."""
    async with serving(tmp_path) as (_, client):
        good, bad = (
            (await upload(client)).json(),
            (await upload(client, "Bad", file(hum(2)))).json(),
        )
    (tmp_path / bad["id"] / "voice.json").write_text("{")
    async with serving(tmp_path) as (server, client):
        ready = (await client.get("/readyz")).text
        assert bad["id"] in ready and good["id"] not in ready
        assert await spoken(server, "Ada")
