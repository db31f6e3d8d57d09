"""Settings of all tests: Hypothesis judges what code does, not how fast a busy machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("rtts", deadline=None)
settings.load_profile("rtts")
