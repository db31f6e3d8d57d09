from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.pieces import cut, mark_of
from rtts.engine.cpu.reading import NO_WORD, Chunk

CHUNKS = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.sampled_from(["", "", "", "", ",", ";", ".", "?”", "—"]),
        st.sampled_from([1, 1, 1, 40]),
    ),
    max_size=80,
).map(
    lambda parts: [
        Chunk("a" * (size * times) + mark, word) for word, (size, mark, times) in enumerate(parts)
    ]
)


def words(text: str) -> list[Chunk]:
    return [Chunk(part, word) for word, part in enumerate(text.split())]


def texts(chunks: list[Chunk], first: int = 60, later: int = 160) -> list[str]:
    return [piece.phonemes for piece in cut(chunks, first=first, later=later)]


@given(chunks=CHUNKS, first=st.integers(20, 100), later=st.integers(60, 300))
def test_nothing_is_lost(chunks: list[Chunk], first: int, later: int) -> None:
    """The pieces in order are the reading; none is empty or longer than the network bears."""
    pieces = cut(chunks, first=first, later=later)
    said = "".join(chunk.phonemes for piece in pieces for chunk in piece.chunks)
    assert said == "".join(chunk.phonemes for chunk in chunks)
    assert [chunk.word for piece in pieces for chunk in piece.chunks] == sorted(
        chunk.word for piece in pieces for chunk in piece.chunks
    )
    for piece in pieces:
        assert 0 < len(piece.phonemes) <= 300
        assert piece.mark == mark_of(piece.chunks[-1])


@given(chunks=CHUNKS)
def test_cuts_are_at_marks(chunks: list[Chunk]) -> None:
    """A piece ends without a mark only where it would be too long, or the text ends."""
    pieces = cut(chunks, first=60, later=160)
    for piece, following in zip(pieces, pieces[1:], strict=False):
        if not piece.mark:
            together = f"{piece.phonemes} {following.chunks[0].phonemes}"
            assert len(together) > 300


def test_a_sentence_is_a_piece() -> None:
    """Sentences are spoken one by one, also short ones; a mark alone is no sentence."""
    assert texts(words("jˈɛs. nˈO. “wˈAt?” oʊkˈA")) == ["jˈɛs.", "nˈO.", "“wˈAt?”", "oʊkˈA"]
    dots = [Chunk("…", NO_WORD), *words("hˈI ðˈɛɹ")]
    assert texts(dots) == ["… hˈI ðˈɛɹ"]


def test_who_waits_gets_a_clause() -> None:
    """A long first sentence begins with a clause, a later one does not."""
    clause, rest = "bbbbbbbb " * 4 + "bbb,", "cccccccc " * 9 + "ccc."
    assert texts(words(f"{clause} {rest}")) == [clause, rest]
    assert texts(words(f"{clause} {rest}"), first=160) == [f"{clause} {rest}"]


def test_clauses_are_not_crumbs() -> None:
    """A clause of a word or two is neither cut off nor left over."""
    long = "bbbbbbbb " * 9 + "bbb"
    assert texts(words(f"aa, {long}, cc.")) == [f"aa, {long}, cc."]
