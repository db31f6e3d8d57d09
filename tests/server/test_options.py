"""What must not be started is not started, and the refusal says which setting and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtts.errors import ConfigError
from rtts.server.options import ServerOptions, is_loopback, parse_ip
from rtts.settings.schema import settings_of


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost", "LOCALHOST"]
)
def test_loopback_needs_no_keys(host):
    """This machine's own addresses may be served without keys."""
    assert is_loopback(host)
    ServerOptions(host=host).check()


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "192.168.1.5", "tts.example.com", "fe80::1%eth0"]
)
def test_other_addresses_need_keys_or_an_explicit_word(host):
    """Every other address refuses to start without keys, unless told that this is meant."""
    with pytest.raises(ConfigError, match=r"server\.host.*api_keys.*insecure"):
        ServerOptions(host=host).check()
    ServerOptions(host=host, api_keys=("k",)).check()
    ServerOptions(host=host, insecure=True).check()
    ServerOptions(host=host, unix_socket=Path("/x")).check()


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (ServerOptions(port=70_000), "server.port"),
        (ServerOptions(max_sessions=0), "server.max_sessions"),
        (ServerOptions(max_sessions_per_ip=0), "server.max_sessions_per_ip"),
        (ServerOptions(handshake_timeout_s=0.0), "server.handshake_timeout_s"),
        (ServerOptions(auth_timeout_s=0.0), "server.auth_timeout_s"),
        (ServerOptions(ssl_keyfile=Path("k")), "server.ssl_keyfile"),
        (ServerOptions(ssl_certfile=Path("/nowhere.pem")), "server.ssl_certfile"),
        (ServerOptions(dashboard_dir=Path("/nowhere")), "server.dashboard_dir"),
    ],
)
def test_wrong_settings_are_named(options, names):
    """A setting that cannot work is an error that names it."""
    with pytest.raises(ConfigError, match=names):
        options.check()


def test_every_option_has_its_sentence():
    """`rtts config` and the manual take each option's sentence from the docstring."""
    settings = settings_of(ServerOptions, "server.")
    assert all(setting.sentence for setting in settings.values())
    assert settings["server.api_keys"].is_secret


def test_ipv4_in_ipv6_is_ipv4():
    """A dual-stack socket shows IPv4 peers as mapped addresses."""
    assert str(parse_ip("::ffff:127.0.0.1")) == "127.0.0.1"
    assert parse_ip("example.com") is None
