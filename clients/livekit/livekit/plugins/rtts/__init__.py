"""Speech of an rtts server in a LiveKit agent: `AgentSession(tts=rtts.TTS(url=...))`."""

import logging

from livekit.agents import Plugin
from livekit.plugins.rtts.tts import TTS, SynthesizeStream
from livekit.plugins.rtts.version import __version__

__all__ = ["TTS", "SynthesizeStream", "__version__"]


class _RttsPlugin(Plugin):
    def __init__(self) -> None:
        super().__init__(
            __name__, __version__, __package__ or __name__, logging.getLogger(__name__)
        )


Plugin.register_plugin(_RttsPlugin())
