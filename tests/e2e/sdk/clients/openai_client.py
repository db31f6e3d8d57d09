"""The openai package: every format, streaming, events, errors, a dropped stream."""

import asyncio
import json
import os
import time
from pathlib import Path

import openai

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
BASE = os.environ["SDK_URL"] + "/v1"
said = {}
client = openai.OpenAI(api_key=os.environ["SDK_KEY"], base_url=BASE, max_retries=0)
speech = client.audio.speech

said["models"] = [model.id for model in client.models.list()]
said["model"] = client.models.retrieve("tts-1").id

for form in ("pcm", "wav", "opus", "mp3"):
    with speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format=form
    ) as response:
        response.stream_to_file(OUT / f"speech.{form}")
        said[form] = response.headers["content-type"]
default = speech.create(
    model="gpt-4o-mini-tts", voice="nova", input="Hello.", instructions="kindly"
)
said["default"] = default.response.headers["content-type"]

began = time.monotonic()
with speech.with_streaming_response.create(
    model="tts-1", voice="alloy", input=TEXT, response_format="pcm", stream_format="sse"
) as response:
    said["sse"] = response.headers["content-type"]
    events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: ")]
said["events"] = [event["type"] for event in events]
said["usage"] = events[-1]["usage"]

with speech.with_streaming_response.create(
    model="tts-1", voice="alloy", input=LONG, response_format="pcm"
) as response:
    began = time.monotonic()
    next(response.iter_bytes(4096))
    said["first_bytes_s"] = time.monotonic() - began


def refused(**fields):
    asked = {"model": "tts-1", "voice": "alloy", "input": "Hi."} | fields
    try:
        speech.create(**asked)
    except openai.APIStatusError as error:
        return [type(error).__name__, error.status_code, error.code, error.param]
    return None


said["wrong_voice"] = refused(voice="nobody")
said["wrong_format"] = refused(response_format="flac")
said["empty"] = refused(input="")
client.api_key = "wrong"
said["wrong_key"] = refused()
client.api_key = os.environ["SDK_KEY"]
emoji = speech.create(
    model="tts-1", voice="alloy", input="\N{GRINNING FACE}", response_format="pcm",
    extra_body={"language": "en", "whatever": [1]},
)  # fmt: skip
said["emoji_bytes"] = len(emoji.content)


async def together():
    """Several requests of the asynchronous client at once."""
    async with openai.AsyncOpenAI(api_key=os.environ["SDK_KEY"], base_url=BASE) as many:
        answers = await asyncio.gather(
            *(
                many.audio.speech.create(
                    model="tts-1", voice="alloy", input=TEXT, response_format="pcm"
                )
                for _ in range(4)
            )
        )
        return [len(answer.content) for answer in answers]


said["together"] = asyncio.run(together())
client.close()
print(json.dumps(said))
