import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.engine.cpu.speakable import speakable, unknown_letters

MIXED = st.text(
    st.one_of(
        st.sampled_from("abcXYZ 0123456789 ,.;:!?-—'\"()[]{}+#~$%/\\\n\t°²½✓😀\u200d\u0301"),
        st.sampled_from("你好世界привет안녕αβπالسلامＡ１①ﬁ"),
        st.characters(),
    ),
    max_size=60,
)


@given(text=MIXED)
def test_units_lie_in_the_text(text: str) -> None:
    """Units are in order, inside the text, apart from each other, and have words to read."""
    at = 0
    for unit in speakable(text).units:
        assert at <= unit.start < unit.end <= len(text)
        at = unit.end
        assert unit.reading
        assert unit.reading == " ".join(unit.reading.split())


@given(text=st.text(st.characters(max_codepoint=0x24F), max_size=60))
def test_no_latin_letter_is_lost(text: str) -> None:
    """Letters and digits of Latin text are in some unit, and none is called unknown."""
    said = speakable(text)
    covered = {at for unit in said.units for at in range(unit.start, unit.end)}
    for at, char in enumerate(text):
        if char.isascii() and char.isalnum():
            assert at in covered, text
    assert not said.unknown


@given(text=MIXED)
def test_every_unknown_letter_is_counted(text: str) -> None:
    """What is left out is what is neither Latin nor a Greek letter that stands for itself."""
    assert speakable(text).unknown.total() <= unknown_letters(text, known=()).total()
    if text.isascii():
        assert not unknown_letters(text, known=())


@given(text=MIXED, at=st.integers(0, 60))
def test_invisible_characters_change_no_reading(text: str, at: int) -> None:
    """A soft hyphen, a joiner or half a surrogate pair inside a word is not heard."""
    readings = [unit.reading for unit in speakable(f"word {text} word").units]
    if at < len(text) and text[at - 1 : at + 1].isalpha() and text.isascii():
        for invisible in ("\u00ad", "\u200b", "\ud83d", "\x07"):
            broken = text[:at] + invisible + text[at:]
            assert [u.reading for u in speakable(f"word {broken} word").units] == readings


@pytest.mark.parametrize(
    ("text", "readings"),
    [
        ("Hello, world!", ["Hello,", "world!"]),
        ("Call (555) 123-4567 now.", ["Call", "5 5 5, 1 2 3, 4 5 6 7", "now."]),
        ("+1 (555) 123-4567", ["plus 1, 5 5 5, 1 2 3, 4 5 6 7"]),
        ("+44 20 7946 0958.", ["plus 4 4, 2 0, 7 9 4 6, 0 9 5 8."]),
        ("555.123.4567.", ["5 5 5, 1 2 3, 4 5 6 7."]),
        ("call 555-1234.", ["call", "5 5 5, 1 2 3 4."]),
        ("+5 apples", ["+5", "apples"]),
        ("[1,2,3]", ["1, 2, 3"]),
        ("1,234,567 or 1,23,456", ["1,234,567", "or", "1,23,456"]),
        ("$1,234.50", ["$1,234.50"]),
        ("4111111111111111", ["4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"]),
        ("agent 007, 07:30", ["agent", "0 0 7,", "07:30"]),
        ("pages 3-5.", ["pages", "3 to 5."]),
        ("5'6\" tall", ["5 foot 6", "tall"]),
        ("C# or F#, #1", ["C sharp", "or", "F sharp,", "#1"]),
        ("~5 km", ["about 5", "km"]),
        ("open 24/7", ["open", "24 7"]),
        ("well—really -- no", ["well", "—", "really", "—", "no"]),
        ("10⁴, 10⁻¹², x²", ["10 to the power of 4,", "10 to the power of minus 12,", "x²"]),
        ("great👍! 😀 ok", ["great!", "ok"]),
        ("Ｈｅｌｌｏ １２ ﬁne ①", ["Hello", "12", "fine", "1"]),
        ("¹A ⅓ cup 2½", ["1A", "1/3", "cup", "2½"]),
        ("wow!!!!!!!! ......", ["wow!!!..."]),
        ("a-" * 12, ["a-a-a-a-a- a-a-a-a-a- a-a-"]),
        ("ab1" * 9, ["ab1ab1ab1ab1ab1 ab1ab1ab1ab1"]),
        ("α-decay and π", ["alpha -decay", "and", "pi"]),
        ("我喜欢Python和Java。", ["Python", "Java."]),
        ("don’t {x} [y]", ["don’t", "x", "y"]),
    ],
)
def test_readings(text: str, readings: list[str]) -> None:
    """What the G2P reads badly is spelled out; the rest is left to it."""
    assert [unit.reading for unit in speakable(text).units] == readings


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("你好，世界。", {"Chinese characters": 4}),
        ("привет, друг", {"Cyrillic": 10}),
        ("السلام", {"Arabic": 6}),
        ("λόγος", {"Greek": 5}),
        ("カタカナ ひら", {"Japanese kana": 6}),
        ("😀👍 … !", {}),
        (" \n", {}),
        ("", {}),
    ],
)
def test_nothing_to_say(text: str, unknown: dict[str, int]) -> None:
    """Text without a letter or digit the voice knows cannot be said, and is named."""
    said = speakable(text)
    assert not said.can_be_said
    assert dict(said.unknown) == unknown
