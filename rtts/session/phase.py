"""The life of a context as one table. Everything that changes a phase goes through `next_phase`.

open ──segment──▶ speaking ──end──▶ finishing ──spoken──▶ sending ──sent──▶ done
  └──────end (nothing to speak)─────────────────────────────▲
"""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """Where a context is."""

    OPEN = "open"  # started; nothing given to the engine yet
    SPEAKING = "speaking"  # the engine has an utterance; more text may come
    FINISHING = "finishing"  # all text is with the engine
    SENDING = "sending"  # everything is spoken; the last messages wait to be sent
    DONE = "done"  # the terminal message is out


class Cause(StrEnum):
    """What moves a context on."""

    SEGMENT = "segment"  # a segment goes to the engine
    END = "end"  # the client has no more text
    SPOKEN = "spoken"  # the engine finished the utterance
    SENT = "sent"  # the last message before `done` was taken
    STOP = "stop"  # cancelled, failed, expired or shut down


TRANSITIONS: dict[Phase, dict[Cause, Phase]] = {
    Phase.OPEN: {Cause.SEGMENT: Phase.SPEAKING, Cause.END: Phase.SENDING, Cause.STOP: Phase.DONE},
    Phase.SPEAKING: {
        Cause.SEGMENT: Phase.SPEAKING,
        Cause.END: Phase.FINISHING,
        Cause.SPOKEN: Phase.SENDING,
        Cause.STOP: Phase.DONE,
    },
    Phase.FINISHING: {Cause.SPOKEN: Phase.SENDING, Cause.STOP: Phase.DONE},
    Phase.SENDING: {Cause.SENT: Phase.DONE, Cause.STOP: Phase.DONE},
    Phase.DONE: {},
}


def next_phase(phase: Phase, cause: Cause) -> Phase:
    """The phase after `cause`.

    Raises:
        AssertionError: The move is not in the table: a bug of ours, never a client's doing.
    """
    following = TRANSITIONS[phase].get(cause)
    assert following is not None, f"{cause} is impossible in phase {phase}"
    return following
