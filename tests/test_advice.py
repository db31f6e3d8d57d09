"""Advice: every cause that was measured gives its advice, nothing else does, and it ends."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.advice import HOLD_S, RULES, Adviser, Condition, Finding, Window, advise
from rtts.metrics import ENGINE_PARTS, STAGES
from rtts.settings import all_settings

STAGE_WORDS = {"", "client", *STAGES, *ENGINE_PARTS}
BUSY = {"contexts": 100, "measured": 100}

# (code, stage, window, condition)
CAUSES = [
    ("engine_restarting", "engine", {}, {"reasons": ("engine_down",)}),
    ("not_ready", "", {}, {"reasons": ("loading",)}),
    ("draining", "", {}, {"reasons": ("draining",)}),
    ("batch_full", "queue", {}, {"utterances": 8, "slots": 8}),
    ("batch_full", "queue", {}, {"backlog_s": 0.6}),
    ("batch_full", "queue", {"errors": {"overloaded": 1}}, {}),
    ("cold_voices", "queue", {**BUSY, "cold": 5}, {}),
    ("slow_text", "split", {**BUSY, "slow_texts": 10}, {}),
    ("long_queue", "queue", {**BUSY, "misses": {"queue": 5}}, {}),
    ("slow_engine", "engine", {**BUSY, "misses": {"engine": 5}}, {}),
    ("slow_engine", "prefill", {**BUSY, "misses": {"prefill": 5, "codec": 2}}, {}),
    ("slow_engine", "first_frame", {**BUSY, "misses": {"first_frame": 5}}, {}),
    ("slow_engine", "codec", {**BUSY, "misses": {"codec": 5}}, {}),
    ("slower_than_speech", "engine", {"rtf": 1.2}, {}),
    ("underruns", "engine", {**BUSY, "stalled": 3}, {}),
    ("busy_loop", "encode", {**BUSY, "misses": {"encode": 5}}, {}),
    ("busy_loop", "encode", {**BUSY, "misses": {"split": 5}}, {}),
    ("busy_loop", "encode", {}, {"loop_lag_s": 0.08}),
    ("opus_effort", "encode", {}, {"opus_effort": 1}),
    ("slow_client", "send", {**BUSY, "misses": {"send": 5}}, {}),
    ("slow_client", "client", {**BUSY, "misses": {"client": 5}}, {}),
    ("slow_client", "client", {"errors": {"slow_consumer": 1}}, {}),
    ("dry_players", "client", {**BUSY, "client_reports": 50, "client_underruns": 5}, {}),
    ("gpu_memory", "engine", {}, {"gpu_memory_share": 0.97}),
    (
        "no_flash_attention",
        "engine",
        {},
        {"degraded": ("flash-attn is installed but cannot be used",)},
    ),
    ("degraded", "", {}, {"degraded": ("only 1 of 17 voices",)}),
    ("internal_errors", "", {"errors": {"internal": 1}}, {}),
    ("lost_speech", "engine", {"errors": {"engine_dead": 2}}, {}),
]


@pytest.mark.parametrize(("code", "stage", "window", "condition"), CAUSES)
def test_a_cause_has_its_advice(code, stage, window, condition):
    """One cause, one finding, of its stage, with something to do."""
    (found,) = advise(Window(**window), Condition(**condition))
    assert (found.code, found.stage) == (code, stage)
    assert found.remedy


def test_every_rule_has_a_cause_that_was_tried():
    """No rule is trusted that has not been seen to speak."""
    spoken = {
        rule
        for _, _, window, condition in CAUSES
        for rule in RULES
        if rule(Window(**window), Condition(**condition)) is not None
    }
    assert spoken == set(RULES)


def test_a_healthy_server_has_no_advice():
    """Nothing wrong, nothing said: idle, and busy with a few misses among many."""
    assert advise(Window()) == []
    busy = Window(
        contexts=1000, measured=1000, misses={"engine": 5}, cold=10, slow_texts=20, stalled=2,
        client_reports=1000, client_underruns=10, rtf=0.3, errors={"unknown_voice": 4},
    )  # fmt: skip
    calm = Condition(utterances=80, slots=128, backlog_s=0.1, loop_lag_s=0.01, gpu_memory_share=0.8)
    assert advise(busy, calm) == []


def test_a_reason_is_not_told_twice():
    """A queue that is long because the batch is full, or voices are cold, is advised once."""
    window = Window(**BUSY, misses={"queue": 20}, cold=20)
    assert [each.code for each in advise(window)] == ["cold_voices"]
    window = Window(**BUSY, misses={"queue": 20}, errors={"overloaded": 3})
    assert [each.code for each in advise(window)] == ["batch_full"]


def test_an_attention_that_cannot_be_used_is_a_note_and_not_the_remedy():
    """It is said, but nothing was measured to be slower without it."""
    sentence = "flash-attn is installed but cannot be used"
    found = advise(Window(**BUSY, misses={"first_frame": 9}), Condition(degraded=(sentence,)))
    assert [each.code for each in found] == ["slow_engine", "no_flash_attention"]
    assert "flash-attn" not in found[0].remedy.lower()
    assert (found[1].severity, found[1].text) == (
        "note",
        "Flash-attn is installed but cannot be used.",
    )


counts = st.integers(0, 200)
windows = st.builds(
    Window,
    contexts=counts,
    measured=counts,
    misses=st.dictionaries(st.sampled_from(sorted(STAGE_WORDS)), counts),
    cold=counts,
    slow_texts=counts,
    stalled=counts,
    client_reports=counts,
    client_underruns=counts,
    rtf=st.none() | st.floats(0, 3),
    errors=st.dictionaries(st.sampled_from(["overloaded", "internal", "slow_consumer"]), counts),
)
conditions = st.builds(
    Condition,
    reasons=st.lists(st.sampled_from(["engine_down", "loading", "draining"])).map(tuple),
    troubles=st.lists(st.just("a voice is broken.")).map(tuple),
    degraded=st.lists(st.sampled_from(["prompts use SDPA", "one voice only"])).map(tuple),
    utterances=counts,
    slots=counts,
    backlog_s=st.floats(0, 9),
    opus_effort=st.none() | st.just(1),
    loop_lag_s=st.floats(0, 1),
    gpu_memory_share=st.none() | st.floats(0, 1),
)


@given(windows, conditions)
def test_whatever_happens_advice_is_readable(window, condition):
    """Each code once, known stages, whole sentences, problems before notes, settings that exist."""
    found = advise(window, condition)
    codes = [each.code for each in found]
    assert len(codes) == len(set(codes))
    assert [each.severity for each in found] == sorted(
        (each.severity for each in found), key="problem note".index
    )
    for each in found:
        assert each.stage in STAGE_WORDS
        for text in (each.text, each.remedy):
            assert text[0] == text[0].upper() or text[0] == "`"
        assert each.text.endswith(".")


def test_settings_that_advice_names_exist():
    """What the reader is told to change can be changed."""
    source = (Path(__file__).parents[1] / "rtts/advice.py").read_text()
    named = re.findall(r"\b(?:server|session|engine|cpu|qwen)\.[a-z_]+", source)
    assert len(named) > 5
    assert set(named) <= set(all_settings())


SLOW = Finding(code="slow", stage="engine", text="It is slow.", remedy="Make it fast.")


def test_since_is_when_it_began_and_it_ends():
    """The time stays while the finding stays, outlives a flicker, and starts anew after an end."""
    adviser = Adviser()
    assert [each.since_s for each in adviser.update([SLOW], 10.0)] == [10.0]
    assert [each.since_s for each in adviser.update([SLOW], 11.0)] == [10.0]
    assert [each.since_s for each in adviser.update([], 11.0 + HOLD_S / 2)] == [10.0]
    assert adviser.update([], 11.0 + HOLD_S) == []
    assert [each.since_s for each in adviser.update([SLOW], 30.0)] == [30.0]
