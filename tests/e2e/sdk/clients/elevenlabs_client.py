"""The elevenlabs package, synchronous and asynchronous: sockets, formats, times, lists, errors."""

import asyncio
import base64
import json
import os
from pathlib import Path

from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
URL, KEY = os.environ["SDK_URL"], os.environ["SDK_KEY"]
VOICE, MODEL = "JBFqnCBsd6RMkjVDRZzb", "eleven_flash_v2_5"
client = ElevenLabs(api_key=KEY, base_url=URL)
speech = client.text_to_speech
said = {}


def tokens(text):
    """As a language model gives them: a space comes with the word behind it."""
    first, *rest = text.split()
    return iter([first, *(" " + word for word in rest)])


# The socket.
how = {"model_id": MODEL, "output_format": "pcm_24000"}
settings = VoiceSettings(stability=0.5, similarity_boost=0.8, speed=1.0)
audio = speech.convert_realtime(VOICE, text=tokens(TEXT), voice_settings=settings, **how)
(OUT / "realtime.pcm").write_bytes(b"".join(audio))
audio = speech.convert_realtime(VOICE, text=iter([TEXT]))  # every default
(OUT / "realtime.mp3").write_bytes(b"".join(audio))
audio = speech.convert_realtime(VOICE, text=iter(["\N{GRINNING FACE}"]), **how)
said["emoji_bytes"] = len(b"".join(audio))
audio = speech.convert_realtime(VOICE, text=iter([LONG]), **how)
said["first"] = len(next(audio))
audio.close()

# HTTP.
SHORT = TEXT.split(".")[0] + "."
said["sizes"] = {}
for name in ("pcm_24000", "wav_16000", "ulaw_8000", "alaw_8000", "mp3_22050_32"):
    body = speech.convert(VOICE, text=SHORT, model_id=MODEL, output_format=name)
    said["sizes"][name] = len(b"".join(body))
body = speech.convert(VOICE, text=TEXT, output_format="opus_48000_64")
(OUT / "convert.opus").write_bytes(b"".join(body))
(OUT / "convert.mp3").write_bytes(b"".join(speech.convert(VOICE, text=TEXT)))
stream = speech.stream(
    VOICE, text=LONG, output_format="pcm_24000", optimize_streaming_latency=3,
    voice_settings=settings, previous_text="Before.", apply_text_normalization="off",
)  # fmt: skip
said["streamed"] = len(next(stream))
stream.close()
whole = speech.convert_with_timestamps(VOICE, text=TEXT, output_format="pcm_24000")
said["timed"] = "".join(whole.alignment.characters)
said["timed_end"] = whole.alignment.character_end_times_seconds[-1]
said["timed_bytes"] = len(base64.b64decode(whole.audio_base_64))
lines = list(speech.stream_with_timestamps(VOICE, text=TEXT, output_format="pcm_24000"))
said["lines"] = len(lines)
said["lines_bytes"] = sum(len(base64.b64decode(line.audio_base_64)) for line in lines)
said["lines_text"] = "".join(
    c for line in lines if line.alignment for c in line.alignment.characters
)

# Lists.
voices = client.voices.get_all().voices
said["voices"] = [[voice.voice_id, voice.name, voice.category] for voice in voices]
found = client.voices.search(page_size=1)
said["found"] = [len(found.voices), found.total_count == len(voices)]
said["voice"] = client.voices.get(voices[0].voice_id).voice_id
said["models"] = [model.model_id for model in client.models.list()]
said["tier"] = client.user.get().subscription.tier
said["limit"] = client.user.subscription.get().character_limit > 0


# Errors.
def refused(ask):
    try:
        ask()
    except ApiError as error:
        return [error.status_code, error.body["detail"]["status"]]
    return None


said["empty"] = refused(lambda: list(speech.convert(VOICE, text="")))
said["format"] = refused(lambda: list(speech.convert(VOICE, text="Hi.", output_format="aac_1")))
said["no_voice"] = refused(lambda: client.voices.get("nobody"))
recording = ("ada.mp3", (OUT / "convert.mp3").read_bytes())
said["clone"] = refused(lambda: client.voices.ivc.create(name="Ada", files=[recording]))
said["delete"] = refused(lambda: client.voices.delete("nobody"))
bare = ElevenLabs(api_key=None, base_url=URL)
said["no_key"] = refused(lambda: bare.voices.get_all())
wrong = ElevenLabs(api_key="wrong", base_url=URL)
said["wrong_key"] = refused(lambda: list(wrong.text_to_speech.convert(VOICE, text="Hi.")))
said["wrong_list"] = refused(lambda: wrong.voices.get_all())


async def together():
    """Several requests of the asynchronous client at once."""
    many = AsyncElevenLabs(api_key=KEY, base_url=URL)

    async def one():
        body = many.text_to_speech.stream(VOICE, text=SHORT, output_format="pcm_24000")
        return len(b"".join([piece async for piece in body]))

    return await asyncio.gather(*(one() for _ in range(3)))


said["together"] = asyncio.run(together())
print(json.dumps(said))
