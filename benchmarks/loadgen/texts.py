"""What is said: replies of varied sentences, and the pace at which they are written."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

# Written for this purpose; 5 to 15 words each, so that any of them can be a first segment.
SENTENCES = (
    "Sure, I can help with that.",
    "The next train to the coast leaves at twenty past nine.",
    "It will be cloudy in the morning, with some sun after lunch.",
    "I found three restaurants that are open this late.",
    "Your parcel arrived at the sorting office yesterday evening.",
    "Would you like me to read the whole message?",
    "The meeting was moved from Tuesday to Thursday at half past two.",
    "There are about four hundred steps up to the tower.",
    "Please keep the receipt, because you will need it later.",
    "She said that the garden looks best in early June.",
    "Turn left after the bridge and follow the river for a mile.",
    "That is a good question, and the answer is not simple.",
    "You have two new messages and one missed call.",
    "The recipe asks for six eggs, some butter and a little patience.",
    "Nobody knows exactly when the old library was built.",
    "I can set a reminder for you, if you tell me the day.",
    "The museum closes early on Sundays during the winter.",
    "Prices went up again, although more slowly than last year.",
    "My favourite part is the quiet moment before the music starts.",
    "Let me check the calendar before we decide anything.",
    "It takes about an hour by car and twice as long by bus.",
    "The second half of the book is better than the first.",
    "We could also walk, since the rain has finally stopped.",
    "Both keys open the front door, but only one opens the gate.",
    "Thank you for waiting, here is what I found for you.",
    "The battery lasts for two days if you are careful.",
    "There was a short delay, and now everything is back to normal.",
    "Most people prefer the window seat on a long flight.",
    "He has worked on this small boat for almost eleven years.",
    "If you like strong coffee, try the place on the corner.",
)


def reply(rng: random.Random, n_sentences: tuple[int, int]) -> str:
    """A reply of so many sentences (lowest, highest), without a repetition."""
    count = rng.randint(*n_sentences)
    return " ".join(rng.sample(SENTENCES, min(count, len(SENTENCES))))


def pieces(text: str, words_per_s: float | None, rng: random.Random) -> Iterator[tuple[float, str]]:
    """The messages a writer sends: (seconds to wait before it, text).

    Args:
        words_per_s: Words come at random (exponential) distances of this mean rate, as from a
            language model behind a network; None sends everything at once.
    """
    if words_per_s is None:
        yield 0.0, text
        return
    for index, word in enumerate(re.findall(r"\S+\s*", text)):
        yield (rng.expovariate(words_per_s) if index else 0.0), word
