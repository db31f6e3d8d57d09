"""Real-time speech from an rtts server, as async iterators.

async with connect("ws://127.0.0.1:8765/v1/tts") as client:
async with client.context() as context:
async for event in context.speak(tokens):
...
"""

from rtts_client.client import Client, connect
from rtts_client.context import Context
from rtts_client.errors import (
    ConnectError,
    ConnectionLostError,
    ContextFailedError,
    RttsError,
    SlowReaderError,
)
from rtts_client.messages import (
    Audio,
    AudioFlags,
    Chunking,
    ContextError,
    ContextEvent,
    ContextOptions,
    Done,
    DoneMetrics,
    FirstAudio,
    Flushed,
    Format,
    GoingAway,
    Limits,
    Marks,
    Ready,
    Reconnected,
    Segment,
    Started,
    StreamFormat,
    Warned,
)
from rtts_client.pool import Pool

__version__ = "0.1.0"

__all__ = [
    "Audio",
    "AudioFlags",
    "Chunking",
    "Client",
    "ConnectError",
    "ConnectionLostError",
    "Context",
    "ContextError",
    "ContextEvent",
    "ContextFailedError",
    "ContextOptions",
    "Done",
    "DoneMetrics",
    "FirstAudio",
    "Flushed",
    "Format",
    "GoingAway",
    "Limits",
    "Marks",
    "Pool",
    "Ready",
    "Reconnected",
    "RttsError",
    "Segment",
    "SlowReaderError",
    "Started",
    "StreamFormat",
    "Warned",
    "connect",
]
