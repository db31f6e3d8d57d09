"""Lets the assertions of the shared conformance suite explain themselves."""

import pytest

pytest.register_assert_rewrite("tests.engine.conformance")
