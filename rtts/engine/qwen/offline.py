"""Whole texts to codes and samples in lock step: `rtts synth`, regression records, golden tests.

The same frame function as the live engine's, without scheduler, credit or clocks: each request has
one row, all begin at once, and a row that has ended waits for the others. Ends as the reference
does: at the end id or after `max_frames`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rtts.engine.qwen.codec import CodecState
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.frame import Conditions, Model, SlotState, speak_frame
from rtts.engine.qwen.prompt import Conditioning, Prompt, PromptBuilder, Reference
from rtts.engine.qwen.sampling import Noise, Sampler
from rtts.errors import UtteranceError

SMALLEST_BATCH = 4
"""Rows of the smallest batch. Below four rows the CPU's matrix product takes another path and a row's
bits would depend on its neighbours (measured: torch 2.13, 4 to 64 rows agree bit for bit)."""

Prefill = Callable[[Tensor, int, int], None]
"""Takes vectors `[T, hidden]`, a slot and the position of the first."""

SPAN_STEP = 64
"""Attention spans grow by this many positions."""


@dataclass(frozen=True, slots=True)
class Request:
    """One text to speak.

    Attributes:
        prompt: From `PromptBuilder`, text complete.
        conditions: Tensors of the voice where it is a registered reference.
        reference: With one, the codec starts where the reference's audio ends.
        seed: Of the row's draws.
        greedy: Take the best code instead of drawing, in (group 0, later groups).
    """

    conditioning: Conditioning
    prompt: Prompt
    conditions: Conditions | None = None
    reference: Reference | None = None
    seed: int = 0
    greedy: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class Spoken:
    """What one request became.

    Attributes:
        codes: One tuple of Q codes a frame.
        pcm: s16le, 24 kHz mono.
        ended: Whether the model ended it; otherwise the frame limit did.
    """

    codes: tuple[tuple[int, ...], ...]
    pcm: bytes
    ended: bool


def span_for(positions: int, capacity: int) -> int:
    """The span to attend over when the longest row will hold `positions`."""
    return min(capacity, -(-positions // SPAN_STEP) * SPAN_STEP)


class Offline:
    """Speaks batches of requests on one model.

    Owner: one thread.
    """

    def __init__(self, model: Model, builder: PromptBuilder, sampler: Sampler) -> None:
        self._model, self._builder, self._sampler = model, builder, sampler

    @torch.inference_mode()
    def speak(
        self, requests: Sequence[Request], max_frames: int, noise: Noise | None = None
    ) -> list[Spoken]:
        """Speak all requests.

        Args:
            max_frames: Most codec frames of each.
            noise: Source of draws for all rows; by default each row's own seed.

        Raises:
            UtteranceError: The talker's scores are not numbers.
        """
        slots = max(SMALLEST_BATCH, len(requests))
        heads = [self._builder.head(request.conditioning) for request in requests]
        longest = max(
            len(head) + len(request.prompt.body)
            for head, request in zip(heads, requests, strict=True)
        )
        state = SlotState.allocate(self._model, slots, longest + max_frames + 2)
        codec_state = self._model.codec.state(slots)
        for slot, (head, request) in enumerate(zip(heads, requests, strict=True)):
            rows = self._model.rows(head, request.conditions)
            self._model.talker.prefill(rows, state.kv, slot, 0)
            begin_prompt(self._model, state, slot, len(head), request.prompt, request.conditions)
            state.seeds[slot] = request.seed
            state.greedy[slot], state.greedy_later[slot] = request.greedy
            if request.reference is not None and request.conditions is not None:
                self._continue_reference(codec_state, slot, request.conditions)
        return self._run(requests, state, codec_state, max_frames, longest, noise)

    def _continue_reference(
        self, codec_state: CodecState, slot: int, conditions: Conditions
    ) -> None:
        codec_state.copy_in(slot, codec_after(self._model, conditions.codes))

    def _run(
        self,
        requests: Sequence[Request],
        state: SlotState,
        codec_state: CodecState,
        max_frames: int,
        longest: int,
        noise: Noise | None,
    ) -> list[Spoken]:
        count, slots = len(requests), state.lengths.shape[0]
        codes: list[list[tuple[int, ...]]] = [[] for _ in requests]
        pcm = [bytearray() for _ in requests]
        live = [True] * count + [False] * (slots - count)
        ended = [False] * count
        for frame in range(max_frames):
            texts = [text_at(request.prompt, frame, self._pad) for request in requests]
            texts += [self._pad] * (slots - count)
            out = speak_frame(
                self._model,
                self._sampler,
                state,
                codec_state,
                self._model.talker.project_text(torch.tensor(texts, device=self._model.device)),
                torch.tensor(live, device=self._model.device),
                span_for(longest + frame + 2, state.kv.positions),
                noise,
            )
            if not bool(out.finite[torch.tensor(live, device=self._model.device)].all()):
                raise UtteranceError("the talker's scores are not numbers")
            ends, chosen, samples = out.ended.tolist(), out.codes.tolist(), out.pcm.cpu().numpy()
            for row in range(count):
                if not live[row]:
                    continue
                if ends[row]:
                    live[row], ended[row] = False, True
                    continue
                codes[row].append(tuple(chosen[row]))
                pcm[row] += samples[row].tobytes()
            if not any(live):
                break
        return [Spoken(tuple(codes[row]), bytes(pcm[row]), ended[row]) for row in range(count)]

    @property
    def _pad(self) -> int:
        return self._model.config.text_ids.tts_pad


def begin_prompt(
    model: Model,
    state: SlotState,
    slot: int,
    length: int,
    prompt: Prompt,
    conditions: Conditions | None,
    prefill: Prefill | None = None,
) -> None:
    """Put a prompt's body and last row behind the `length` head positions a slot holds.

    Args:
        prefill: Writes rows' keys and values; by default the talker's own.
    """
    if prompt.body:
        rows = model.rows(prompt.body, conditions)
        if prefill is None:
            model.talker.prefill(rows, state.kv, slot, length)
        else:
            prefill(rows, slot, length)
    last = model.last_side(prompt.last, conditions)
    state.begin_take(slot, length + len(prompt.body), last)


def text_at(prompt: Prompt, frame: int, pad: int) -> int:
    """The text id of a take's step number `frame`, its text being complete."""
    if frame == 0:
        return pad if prompt.last.text is None else prompt.last.text
    return prompt.trailing[frame - 1] if frame <= len(prompt.trailing) else pad


def codec_after(model: Model, codes: Tensor) -> CodecState:
    """A one-slot codec state that has rendered `codes` `[T, Q]`: where a cloned voice starts.

    Rendered in a batch as large as any stream's, so that its bits are those of a stream that began
    with the reference.
    """
    state = model.codec.state(SMALLEST_BATCH)
    active = torch.zeros(SMALLEST_BATCH, dtype=torch.bool, device=model.device)
    active[0] = True
    model.codec.render(codes.T[None].expand(SMALLEST_BATCH, -1, -1), active, state)
    start = model.codec.state(1)
    start.copy_in(0, state)
    return start
