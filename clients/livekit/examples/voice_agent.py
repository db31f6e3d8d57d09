"""A voice agent in LiveKit Agents with speech of an rtts server, complete but for ears and a mind.

    pip install ./clients/python ./clients/livekit
    python voice_agent.py ws://127.0.0.1:8765/v1/tts --out reply.wav

It answers two questions and is interrupted in its first answer. What it says goes, at the pace of
speech, into a WAV file; then the conversation is printed as the language model would see it next: of
the first answer only what was heard. There is no room, and the language model is a script, so this
runs anywhere; the places marked REPLACE take the real ones.
"""

import argparse
import asyncio
import contextlib
import json
import time
import wave
from typing import Any

from livekit import rtc
from livekit.agents import Agent, AgentSession, llm
from livekit.agents.voice import TranscriptSynchronizer, io
from livekit.plugins import rtts

ANSWERS = [
    "Well, that is a long story. It begins with a small shop at the corner of a street. Every morning "
    "its owner opened the door at nine, swept the floor, and waited for the first ticket to be sold.",
    "Of course. The shop opens at nine.",
]


class ScriptedLLM(llm.LLM):
    """Says its answers word by word, at a model's pace."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = iter(ANSWERS)

    def chat(
        self,
        *,
        chat_ctx: llm.ChatContext,
        tools: list[llm.Tool] | None = None,
        conn_options: Any = None,
        **_: Any,
    ) -> llm.LLMStream:
        """The next answer, whatever was asked."""
        return _Answer(self, chat_ctx=chat_ctx, tools=tools or [], conn_options=conn_options)


class _Answer(llm.LLMStream):
    async def _run(self) -> None:
        for word in next(self._llm.answers).split(" "):  # type: ignore[attr-defined]
            delta = llm.ChoiceDelta(role="assistant", content=word + " ")
            self._event_ch.send_nowait(llm.ChatChunk(id="script", delta=delta))
            await asyncio.sleep(0.02)


class WavOutput(io.AudioOutput):
    """A listener: takes audio at the pace of playback and keeps what it heard."""

    def __init__(self, path: str, sample_rate: int) -> None:
        super().__init__(
            label="WavOutput",
            capabilities=io.AudioOutputCapabilities(pause=False),
            sample_rate=sample_rate,
        )
        self.file = wave.open(path, "wb")  # noqa: SIM115
        self.file.setparams((1, 2, sample_rate, 0, "NONE", ""))
        self._frames: asyncio.Queue[rtc.AudioFrame] = asyncio.Queue()
        self._heard_s = 0.0
        self._is_flushed = False
        self._playing: asyncio.Task[None] | None = None

    async def capture_frame(self, frame: rtc.AudioFrame) -> None:
        """Take audio, which may come faster than it is heard."""
        await super().capture_frame(frame)
        self._frames.put_nowait(frame)
        if self._playing is None:
            self._heard_s, self._is_flushed = 0.0, False
            self._playing = asyncio.create_task(self._play())

    def flush(self) -> None:
        """The reply has no more audio."""
        super().flush()
        self._is_flushed = True

    def clear_buffer(self) -> None:
        """Somebody speaks: hear no more."""
        if self._playing is not None:
            self._playing.cancel()
            self._finish(interrupted=True)

    async def _play(self) -> None:
        self.on_playback_started(created_at=time.time())  # noqa: TID251
        plays_until = asyncio.get_running_loop().time()
        while not (self._is_flushed and self._frames.empty()):
            with contextlib.suppress(TimeoutError):
                frame = await asyncio.wait_for(self._frames.get(), 0.02)
                self.file.writeframes(bytes(frame.data))
                now = asyncio.get_running_loop().time()
                plays_until = max(now, plays_until) + frame.duration
                await asyncio.sleep(plays_until - now)
                self._heard_s += frame.duration
        self._finish(interrupted=False)

    def _finish(self, *, interrupted: bool) -> None:
        self._playing, self._frames = None, asyncio.Queue()
        self.on_playback_finished(playback_position=self._heard_s, interrupted=interrupted)


async def main() -> None:
    """Put the agent together, and be its user."""
    parser = argparse.ArgumentParser(description="A voice agent with speech of an rtts server.")
    parser.add_argument("url", help="ws://HOST:8765/v1/tts")
    parser.add_argument("--key", help="the server's API key")
    parser.add_argument("--out", default="reply.wav", help="where the speech goes")
    arguments = parser.parse_args()

    tts = rtts.TTS(url=arguments.url, api_key=arguments.key)
    session: AgentSession[None] = AgentSession(
        # REPLACE: stt=deepgram.STT(), vad=silero.VAD.load(), for ears
        llm=ScriptedLLM(),  # REPLACE: openai.LLM()
        tts=tts,
        use_tts_aligned_transcript=True,  # so that memory holds what was heard
    )
    output = WavOutput(arguments.out, tts.sample_rate)
    # REPLACE: leave out these three lines and give start() a room, which does the same.
    heard = TranscriptSynchronizer(next_in_chain_audio=output, next_in_chain_text=None)
    session.output.audio, session.output.transcription = heard.audio_output, heard.text_output
    await session.start(Agent(instructions="Answer questions about the shop."), record=False)
    for question, listens_s in (("What shop?", 2.0), ("When does it open, please?", 3.2)):
        session.generate_reply(user_input=question)
        await asyncio.sleep(listens_s)
        await session.interrupt()
    history = [
        {"role": item.role, "content": item.text_content}
        for item in session.history.items
        if isinstance(item, llm.ChatMessage)
    ]
    await session.aclose()
    await tts.aclose()
    output.file.close()
    print(json.dumps(history))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
