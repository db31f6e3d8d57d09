"""The deepgram-sdk package, synchronous and asynchronous: both versions' sockets, files, errors."""

import asyncio
import json
import os
import threading
from pathlib import Path

from deepgram import AsyncDeepgramClient, DeepgramClient
from deepgram.core.api_error import ApiError
from deepgram.core.events import EventType
from deepgram.environment import DeepgramClientEnvironment
from deepgram.speak.v1.types import SpeakV1Text
from deepgram.speak.v2.types import (
    SpeakV2Interrupt,
    SpeakV2InterruptPlaybackOffset,
    SpeakV2Speak,
)
from websockets.exceptions import InvalidStatus

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
URL, WS_URL, KEY = (os.environ[name] for name in ("SDK_URL", "SDK_WS_URL", "SDK_KEY"))
WHERE = DeepgramClientEnvironment(base=URL, production=WS_URL, agent=WS_URL, agent_rest=URL)
HOW = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": 24000}
TURNS = {"model": "flux-alexis-en", "encoding": "linear16", "sample_rate": 24000}
said = {}


def kind(message):
    return "audio" if isinstance(message, bytes) else message.type


def until(socket, last):
    """Audio, and the kinds of messages, runs of audio as one."""
    audio, kinds, message = b"", [], None
    while message is None or kind(message) != last:
        message = socket.recv()
        if isinstance(message, bytes):
            audio += message
        if not kinds or kind(message) != "audio" or kinds[-1] != "audio":
            kinds.append(kind(message))
    return audio, kinds, message


client = DeepgramClient(api_key=KEY, environment=WHERE)

with client.speak.v1.connect(**HOW) as socket:
    metadata = socket.recv()
    said["metadata"] = [metadata.type, metadata.model_name]
    headers = socket._websocket.response.headers
    said["request_id"] = [metadata.request_id, headers["dg-request-id"]]
    for word in TEXT.split():
        socket.send_text(SpeakV1Text(text=word + " "))
    socket.send_flush()
    audio, said["kinds"], _ = until(socket, "Flushed")
    (OUT / "v1.pcm").write_bytes(audio)
    socket.send_text(SpeakV1Text(text=LONG))
    while not isinstance(socket.recv(), bytes):
        pass
    socket.send_clear()
    until(socket, "Cleared")
    socket.send_text(SpeakV1Text(text=TEXT))
    socket.send_flush()
    audio, said["after"], flushed = until(socket, "Flushed")
    (OUT / "after.pcm").write_bytes(audio)
    said["sequence"] = flushed.sequence_id
    socket.send_close()
    said["rest"] = [kind(message) for message in socket]

with client.speak.v1.connect(**(HOW | {"encoding": "mulaw", "sample_rate": 8000})) as socket:
    heard = []
    done = threading.Event()

    def on_message(message):
        heard.append(message)
        if kind(message) == "Flushed":
            done.set()

    socket.on(EventType.MESSAGE, on_message)
    threading.Thread(target=socket.start_listening, daemon=True).start()
    socket.send_text(SpeakV1Text(text=TEXT))
    socket.send_flush()
    assert done.wait(20)
    said["mulaw"] = sum(len(each) for each in heard if isinstance(each, bytes))


async def turns():
    client = AsyncDeepgramClient(api_key=KEY, environment=WHERE)
    async with client.speak.v2.connect(**TURNS) as socket:
        connected = await socket.recv()
        said["connected"] = [connected.type, connected.model_name]
        for word in TEXT.split():
            await socket.send_speak(SpeakV2Speak(text=word + " "))
        await socket.send_flush()
        audio, kinds = b"", []
        while not kinds or kinds[-1] != "SpeechMetadata":
            message = await socket.recv()
            audio += message if isinstance(message, bytes) else b""
            kinds.append(kind(message))
        (OUT / "v2.pcm").write_bytes(audio)
        said["turn"] = [kinds[0], kinds[-1], message.audio_duration_ms]
        said["characters"] = message.input_character_count
        await socket.send_speak(SpeakV2Speak(text=LONG))
        while not isinstance(message, bytes):
            message = await socket.recv()
        offset = SpeakV2InterruptPlaybackOffset(value=round(len(audio) / 48) + 1000)
        await socket.send_interrupt(SpeakV2Interrupt(playback_offset=offset))
        while kind(message) != "SpeechInterrupted":
            message = await socket.recv()
        said["interrupted"] = [
            message.text_spoken,
            len(message.text_spoken + message.text_remaining),
        ]
        await socket.send_close()
        said["closing"] = [kind(message) async for message in socket]


asyncio.run(turns())

for name, how in {
    "mp3": {},
    "wav": {"encoding": "linear16", "container": "wav"},
    "opus": {"encoding": "opus"},
}.items():
    pieces = client.speak.v1.audio.generate(text=TEXT, model="aura-2-thalia-en", **how)
    (OUT / f"speech.{name}").write_bytes(b"".join(pieces))
pieces = client.speak.v2.audio.generate(
    text=TEXT, model="flux-alexis-en", encoding="linear16", container="none", sample_rate=16000
)
(OUT / "v2-file.pcm").write_bytes(b"".join(pieces))
with client.speak.v1.audio.with_raw_response.generate(text=TEXT, model=HOW["model"]) as response:
    said["headers"] = [
        response.headers.get(name) for name in ("content-type", "dg-model-name", "dg-char-count")
    ]
    next(iter(response.data))

for name, model, key in (("wrong_key", HOW["model"], "wrong"), ("wrong_model", "nobody", KEY)):
    other = DeepgramClient(api_key=key, environment=WHERE)
    try:
        b"".join(other.speak.v1.audio.generate(text="Hi.", model=model))
    except ApiError as error:
        said[name] = [error.status_code, error.body["err_code"], len(error.body["request_id"])]
    try:
        with other.speak.v1.connect(**(HOW | {"model": model})):
            pass
    except InvalidStatus as error:
        said[name] += [error.response.status_code, "dg-error" in error.response.headers]
print(json.dumps(said))
