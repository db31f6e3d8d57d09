from __future__ import annotations

import pytest

from rtts import errors
from rtts.protocol.error_table import ERROR_TABLE, FATAL, close_code, http_status, is_fatal


def all_errors(of: type[errors.RttsError]) -> list[type[errors.RttsError]]:
    return [of, *(found for sub in of.__subclasses__() for found in all_errors(sub))]


def test_every_error_has_exactly_one_row() -> None:
    """Each code of the taxonomy is in the table, once; the table holds nothing else."""
    codes = {error.code for error in all_errors(errors.RttsError)}
    rows = [row.code for row in ERROR_TABLE]
    assert sorted(rows) == sorted(codes)


def test_close_codes_are_ones_an_application_may_send() -> None:
    """RFC 6455 section 7.4: 4000-4999 are ours, of the others only these may be sent."""
    for row in ERROR_TABLE:
        assert 4000 <= row.close <= 4999 or row.close in {1009, 1011, 1012, 1013}


def test_statuses_are_errors_and_retryable_ones_say_try_again() -> None:
    """A retryable error is 429 or 503, which HTTP clients retry; the client's own fault is 4xx."""
    for error in all_errors(errors.RttsError):
        status = http_status(error.code)
        assert 400 <= status <= 599
        if error.retryable:
            assert status in {429, 503}
        if issubclass(error, errors.ProtocolError):
            assert 400 <= status < 500


@pytest.mark.parametrize(
    ("code", "close", "status"),
    [
        ("bad_json", 4400, 400),
        ("unauthorized", 4401, 401),
        ("forbidden_origin", 4403, 403),
        ("message_too_big", 1009, 413),
        ("slow_consumer", 4408, 408),
        ("session_replaced", 4409, 409),
        ("rate_limited", 4429, 429),
        ("overloaded", 1013, 503),
        ("shutting_down", 1012, 503),
        ("internal", 1011, 500),
    ],
)
def test_the_documented_codes(code: str, close: int, status: int) -> None:
    """The numbers clients rely on."""
    assert (close_code(code), http_status(code)) == (close, status)


def test_no_error_is_a_normal_close() -> None:
    """An empty code closes with 1000."""
    assert close_code("") == 1000


def test_an_unknown_code_is_our_own_bug() -> None:
    """Nothing is guessed."""
    for lookup in (close_code, http_status, is_fatal):
        with pytest.raises(KeyError):
            lookup("no_such_code")


def test_fatal_depends_on_what_the_error_is_about() -> None:
    """Some errors always close, some only when no context is to blame, some never."""
    assert "unauthorized" in FATAL
    assert is_fatal("unauthorized", ctx="a")
    assert is_fatal("overloaded") and not is_fatal("overloaded", ctx="a")
    assert not is_fatal("resume_failed") and not is_fatal("bad_json")
    for row in ERROR_TABLE:
        assert is_fatal(row.code, ctx="a") == (row.code in FATAL)
