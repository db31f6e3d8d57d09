"""Keys, origins and host names, from headers alone."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rtts.errors import AuthError, ConfigError, ForbiddenOriginError
from rtts.server.auth import Gate, KeyRing, credentials
from rtts.server.options import ServerOptions

keys = st.text(min_size=1, max_size=40).filter(lambda key: key.strip())


def headers(**values: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in values.items()]


def offer(token: str) -> str:
    return "rtts.auth." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


@given(st.lists(keys, min_size=1, max_size=4), keys)
def test_exactly_the_given_keys_are_accepted(given_keys, other):
    """A key ring accepts its keys, plain or given as a digest, and nothing else."""
    plain = [key for key in given_keys if not key.startswith("sha256:")]
    for ring in (
        KeyRing(plain),
        KeyRing("sha256:" + hashlib.sha256(key.encode()).hexdigest() for key in plain),
    ):
        assert all(ring.accepts(key) for key in plain)
        assert ring.accepts(other) == (other in plain)
        assert not ring.accepts("")


def test_a_digest_is_not_a_key():
    """Whoever reads the digest in the settings cannot log in with it."""
    digest = hashlib.sha256(b"secret").hexdigest()
    ring = KeyRing(["sha256:" + digest])
    assert ring.accepts("secret")
    assert not ring.accepts(digest)
    assert not ring.accepts("sha256:" + digest)


@pytest.mark.parametrize("key", ["", "  ", "sha256:", "sha256:abc", "sha256:" + "g" * 64])
def test_keys_that_cannot_be_meant_are_refused(key):
    """An empty key or a broken digest is a configuration error that does not print the key."""
    with pytest.raises(ConfigError, match=r"server\.api_keys") as error:
        KeyRing([key])
    assert "abc" not in error.value.message and "ggg" not in error.value.message


def test_a_ring_never_shows_its_keys():
    """Neither repr nor attributes hold a key."""
    ring = KeyRing(["topsecret"])
    assert "topsecret" not in repr(ring) + repr(vars(ring))


@pytest.mark.parametrize(
    ("shown", "subprotocols"),
    [
        (headers(authorization="Bearer k1"), []),
        (headers(authorization="bearer  k1 "), []),
        (headers(authorization="Token k1"), []),
        (headers(x_api_key="k1"), []),
        (headers(X_API_KEY="k1"), []),
        ([], ["rtts.v1", offer("k1")]),
        ([], [offer("k1")]),
        (headers(authorization="Bearer wrong", x_api_key="k1"), []),
        (headers(authorization="Bearer wrong"), ["rtts.v1", offer("k1")]),
    ],
)
def test_where_a_key_may_travel(shown, subprotocols):
    """Authorization, X-API-Key and the subprotocol carry a key."""
    assert Gate(ServerOptions(api_keys=("k1", "k2"))).authenticate(shown, subprotocols)


@pytest.mark.parametrize(
    ("shown", "subprotocols"),
    [
        (headers(authorization="Bearer k3"), []),
        (headers(authorization="Bearer K1"), []),
        (headers(x_api_key="k"), []),
        ([], ["rtts.v1", offer("nope")]),
        ([], ["rtts.v1", "rtts.auth.!!"]),
        ([], ["rtts.v1", "rtts.auth."]),
    ],
)
def test_a_wrong_key_is_an_error_without_the_key(shown, subprotocols):
    """A key that is shown and wrong is refused, and not repeated."""
    with pytest.raises(AuthError) as error:
        Gate(ServerOptions(api_keys=("k1",))).authenticate(shown, subprotocols)
    assert "k3" not in error.value.message and "nope" not in error.value.message


@pytest.mark.parametrize(
    "shown",
    [
        [],
        headers(authorization="Basic azE6"),
        headers(authorization="Bearer"),
        headers(x_api_key=" "),
    ],
)
def test_no_key_is_not_a_wrong_key(shown):
    """A request without a key may still send one in its first message."""
    assert Gate(ServerOptions(api_keys=("k1",))).authenticate(shown) is False
    assert Gate(ServerOptions()).authenticate(shown) is True


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20))), st.lists(st.text()))
def test_any_headers_can_be_read(raw, subprotocols):
    """No header and no offer breaks the reading of credentials."""
    assert isinstance(credentials(raw, subprotocols), list)


ORIGINS = ("https://app.example.com", "http://localhost:3000", "https://Ünï.example/")


@pytest.mark.parametrize(
    ("origin", "host", "is_allowed"),
    [
        (None, "127.0.0.1:8765", True),
        ("http://127.0.0.1:8765", "127.0.0.1:8765", True),
        ("http://localhost:8765", "localhost:8765", True),
        ("https://tts.example.com", "tts.example.com", True),  # behind a proxy that does TLS
        ("https://tts.example.com:443", "tts.example.com", True),
        ("http://[::1]:8765", "[::1]:8765", True),
        ("HTTP://LOCALHOST:8765", "localhost:8765", True),
        ("https://app.example.com", "127.0.0.1:8765", True),
        ("https://app.example.com:443", "127.0.0.1:8765", True),
        ("http://localhost:3000", "127.0.0.1:8765", True),
        ("http://app.example.com", "127.0.0.1:8765", False),  # another scheme
        ("https://app.example.com:8443", "127.0.0.1:8765", False),
        ("https://app.example.com.evil.com", "127.0.0.1:8765", False),
        ("https://evil.com", "127.0.0.1:8765", False),
        ("http://localhost:8766", "localhost:8765", False),
        ("http://127.0.0.1:8765.evil.com", "127.0.0.1:8765", False),
        ("null", "127.0.0.1:8765", False),
        ("file://", "127.0.0.1:8765", False),
        ("http://a:b:c", "127.0.0.1:8765", False),
        ("http://[::1", "[::1", False),
        ("http://127.0.0.1:8765/path", "127.0.0.1:8765", False),
        ("https://evil.com", "", False),
    ],
)
def test_origins(origin, host, is_allowed):
    """No origin, our own and listed ones pass; everything else is refused."""
    gate = Gate(ServerOptions(allowed_origins=ORIGINS, api_keys=("k",)))
    shown = headers(host=host) + (headers(origin=origin) if origin is not None else [])
    if is_allowed:
        gate.check_origin(shown)
    else:
        with pytest.raises(ForbiddenOriginError):
            gate.check_origin(shown)


@pytest.mark.parametrize(
    "origin", ["*", "app.example.com", "null", "https://", "https://a/b", "http://a:x"]
)
def test_what_is_no_origin_cannot_be_allowed(origin):
    """A setting that could never match is an error, not a silent nothing."""
    with pytest.raises(ConfigError, match=r"server\.allowed_origins"):
        Gate(ServerOptions(allowed_origins=(origin,)))


def test_allowed_origins_are_spelled_as_browsers_do():
    """Case, a default port and a closing slash do not matter."""
    gate = Gate(ServerOptions(allowed_origins=("HTTPS://App.example.com:443/", "http://[::1]:80")))
    assert gate.origins == ("http://[::1]", "https://app.example.com")


@pytest.mark.parametrize(
    ("host", "is_ours"),
    [
        ("127.0.0.1:8765", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("tts.localhost:8765", True),
        ("[::1]:8765", True),
        ("192.168.0.7:8765", True),  # an address cannot be rebound
        ("app.example.com", True),  # listed as an origin
        ("", True),  # HTTP/1.0: no browser
        ("evil.com:8765", False),
        ("localhost.evil.com", False),
        ("[", False),
        ("127.0.0.1.evil.com", False),
    ],
)
def test_names_that_are_not_ours(host, is_ours):
    """On loopback without keys, a foreign Host is a rebound name and refused."""
    gate = Gate(ServerOptions(allowed_origins=("https://app.example.com",)))
    if is_ours:
        gate.check_host(headers(host=host))
    else:
        with pytest.raises(ForbiddenOriginError):
            gate.check_host(headers(host=host))
    for open_to_names in (
        ServerOptions(api_keys=("k",)),
        ServerOptions(host="::", insecure=True),
        ServerOptions(unix_socket=Path("/run/rtts.sock")),
    ):
        Gate(open_to_names).check_host(headers(host=host))
