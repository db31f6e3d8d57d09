"""The tone engine: a deterministic stand-in for speech that costs almost nothing.

Every segment becomes one tone, as long as its text would take to say, faded at both ends so that a
cut is heard and does not click. The PCM is a pure function of (text, voice, speed, seed), whatever
the chunking, the credit schedule or the neighbours, so that tests compare bytes and load tests
measure rtts instead of a model. It can also pretend: to take time, and to be broken.

It does not speak. It knows nothing about threads, sockets or the clock: the time a chunk is said
to take is modelled with `now`, and `next_due_s` tells the host when to come back.
"""

from rtts.engine.tone.core import ToneEngine
from rtts.engine.tone.options import ToneOptions

__all__ = ["ToneEngine", "ToneOptions"]
