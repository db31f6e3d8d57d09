"""A voice agent in Pipecat with speech of an rtts server, complete but for ears and a mind.

    pip install ./clients/python ./clients/pipecat
    python voice_agent.py ws://127.0.0.1:8765/v1/tts --out reply.wav

It answers two questions and is interrupted in its first answer. What it says goes, at the pace of
speech, into a WAV file; then the conversation is printed as the language model would see it next: of
the first answer only what was heard. The language model is a script, so this runs anywhere; the two
places marked REPLACE take real services.
"""

import argparse
import asyncio
import json
import wave

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMMessagesAppendFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.transports.base_output import BaseOutputTransport
from pipecat.transports.base_transport import TransportParams
from pipecat.workers.runner import WorkerRunner
from pipecat_rtts import RttsTTSService

ANSWERS = [
    "Well, that is a long story. It begins with a small shop at the corner of a street. Every morning "
    "its owner opened the door at nine, swept the floor, and waited for the first ticket to be sold.",
    "Of course. The shop opens at nine.",
]


class ScriptedLLM(FrameProcessor):
    """Says its answers word by word, at a model's pace."""

    def __init__(self) -> None:
        super().__init__()
        self._answers = iter(ANSWERS)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer a context; let everything else pass."""
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        await self.push_frame(LLMFullResponseStartFrame())
        for word in next(self._answers).split(" "):
            await self.push_frame(LLMTextFrame(word + " "))
            await asyncio.sleep(0.02)
        await self.push_frame(LLMFullResponseEndFrame())


class WavOutput(BaseOutputTransport):
    """A listener: takes audio at the pace of playback and keeps what it heard."""

    def __init__(self, path: str) -> None:
        super().__init__(TransportParams(audio_out_enabled=True))
        self._path = path
        self._file: wave.Wave_write | None = None
        self._plays_until = 0.0

    async def start(self, frame: StartFrame) -> None:
        """Open the file."""
        await super().start(frame)
        self._file = wave.open(self._path, "wb")  # noqa: SIM115
        self._file.setparams((1, 2, self.sample_rate, 0, "NONE", ""))
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        """Hear a piece, which takes as long as it lasts."""
        assert self._file is not None
        self._file.writeframes(frame.audio)
        now = asyncio.get_running_loop().time()
        self._plays_until = max(now, self._plays_until) + frame.num_frames / frame.sample_rate
        await asyncio.sleep(self._plays_until - now)
        return True

    async def cleanup(self) -> None:
        """Close the file."""
        await super().cleanup()
        if self._file is not None:
            self._file.close()
            self._file = None


async def main() -> None:
    """Put the agent together, and be its user."""
    parser = argparse.ArgumentParser(description="A voice agent with speech of an rtts server.")
    parser.add_argument("url", help="ws://HOST:8765/v1/tts")
    parser.add_argument("--key", help="the server's API key")
    parser.add_argument("--out", default="reply.wav", help="where the speech goes")
    arguments = parser.parse_args()

    context = LLMContext()
    memory = LLMContextAggregatorPair(context)
    worker = PipelineWorker(
        Pipeline(
            [
                # REPLACE: transport.input() and a speech recogniser, as DeepgramSTTService(...), here
                memory.user(),
                ScriptedLLM(),  # REPLACE: OpenAILLMService(...)
                RttsTTSService(url=arguments.url, api_key=arguments.key),
                WavOutput(arguments.out),  # or transport.output()
                memory.assistant(),
            ]
        ),
        params=PipelineParams(audio_out_sample_rate=24_000, enable_metrics=True),
    )

    async def talk() -> None:
        """A question, an interruption, another question."""
        for question, listens_s in (("What shop?", 2.0), ("When does it open, please?", 3.2)):
            message = {"role": "user", "content": question}
            await worker.queue_frame(LLMMessagesAppendFrame([message], run_llm=True))
            await asyncio.sleep(listens_s)
            await worker.queue_frame(InterruptionFrame())
            await asyncio.sleep(0.2)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), talk())
    print(json.dumps(context.get_messages()))  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
