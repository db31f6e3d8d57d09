"""What the scripts of both plugins use: the built wheels, a proxy that breaks connections, and what
the client alone hears of a text.

The script's first argument is where the wheels were unpacked, the second the URL of a server with
tones, whose samples are exact.
"""

import os
import sys
from pathlib import Path

SITE, TONE_URL = sys.argv[1], sys.argv[2]
sys.path[:0] = [SITE, str(Path(__file__).parents[2])]

from cut_proxy import cut_proxy  # noqa: E402
from rtts_client import Audio, Format, connect  # noqa: E402

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
KEY = os.environ["SDK_KEY"]
CPU_URL = os.environ["SDK_WS_URL"] + "/v1/tts"
MIXED = "Hello there, my **dear** friend. This costs $3.50 (I think)! 今天天气很好。" + TEXT
# Two sentences, which are two segments however they come; where longer texts are cut depends on how
# fast they come.
HALVES = "The shop opens at nine.", " Please bring your ticket and a pen."
ODD = ["👍", "。", "```x```", "  "]  # hardly a word to speak

__all__ = (
    "CPU_URL",
    "HALVES",
    "KEY",
    "LONG",
    "MIXED",
    "ODD",
    "OUT",
    "TEXT",
    "TONE_URL",
    "alone",
    "broken",
    "port_of",
    "settled",
    "tokens",
)


async def alone(text, url=TONE_URL, rate_hz=24_000, **options):
    """The samples of a text by `rtts_client` alone."""
    async with connect(url, api_key=KEY) as client:
        form = Format("pcm_s16le", "raw", rate_hz)
        async with client.context(format=form, **options) as context:
            return b"".join([e.data async for e in context.speak(text) if isinstance(e, Audio)])


def broken(url=TONE_URL):
    """A proxy before a server."""
    return cut_proxy(port_of(url))


def port_of(url):
    return int(url.removesuffix("/v1/tts").rpartition(":")[2])


def tokens(text, size=3):
    """A text in pieces that end anywhere, as a language model's."""
    return [text[at : at + size] for at in range(0, len(text), size)]


async def settled(scenario):
    """What a scenario says. It runs again if samples differ: where this machine stalls for the 150 ms
    after which the server speaks what it has, a text is cut elsewhere."""
    for _ in range(3):
        said = await scenario()
        if said.get("is_exact", True):
            break
    return said
