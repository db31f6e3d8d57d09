from __future__ import annotations

import os
import pwd
import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rtts.errors import ConfigError
from rtts.settings import data_dir, load, render, sources, values
from rtts.settings.schema import Setting, settings_of
from rtts.settings.sources import Given


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Inner part.

    Attributes:
        colour: Which colour.
        keys: Words
            on two lines.
        api_keys: Secrets.
    """

    colour: Colour = Colour.RED
    keys: tuple[str, ...] = ()
    api_keys: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Outer:
    """Outer part.

    Attributes:
        port: A port.
        wait_s: A wait.
        gain_db: A gain.
        max_things: A most.
        mode: A mode.
        on: A switch.
        path: A path.
        maybe: An optional word.
        maybe_s: An optional wait.

    Not an attribute: this line.
    """

    port: int = 8765
    wait_s: float = 0.5
    gain_db: float = -3.0
    max_things: int = 8
    mode: Literal["slow", "fast"] = "slow"
    on: bool = False
    path: Path | None = None
    maybe: str | None = None
    maybe_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class All:
    """Everything."""

    outer: Outer = field(default_factory=Outer)
    inner: Inner = field(default_factory=Inner)


KNOWN = settings_of(All)


def file_error(tmp_path: Path, text: str) -> str:
    path = tmp_path / "rtts.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        sources.from_file(path, KNOWN)
    return caught.value.message.replace(str(path), "rtts.toml")


def env_error(name: str, text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        sources.from_env({name: text}, KNOWN)
    return caught.value.message


class TestSchema:
    def test_sentences(self) -> None:
        """A setting's sentence is its entry under Attributes, joined to one line."""
        assert KNOWN["inner.keys"].sentence == "Words on two lines."
        assert KNOWN["outer.maybe_s"].sentence == "An optional wait."

    def test_names(self) -> None:
        """Key, environment variable and unit follow from the path of field names."""
        assert KNOWN["outer.wait_s"].env == "RTTS_OUTER_WAIT_S"
        assert KNOWN["outer.wait_s"].unit == "seconds"
        assert KNOWN["outer.port"].unit == ""

    def test_order(self) -> None:
        """Settings come in the order of the fields, nested ones where they stand."""
        assert list(KNOWN)[:2] == ["outer.port", "outer.wait_s"]
        assert list(KNOWN)[-1] == "inner.api_keys"

    def test_default_needed(self) -> None:
        """A setting without a default is our mistake and says so."""

        @dataclass
        class Bad:
            x: int

        Bad.__annotations__["x"] = int
        with pytest.raises(TypeError, match=r"Bad\.x is a setting and needs a default"):
            settings_of(Bad)


class TestFile:
    def test_values_keep_their_types(self, tmp_path: Path) -> None:
        """Every type of setting can be written in TOML; each value knows its line."""
        path = tmp_path / "rtts.toml"
        path.write_text(
            '[outer]\nport = 1\nwait_s = 2\ngain_db = -1.5\nmode = "fast"\non = true\n'
            'path = "/x"\nmaybe = "yes"\n\n[inner]\ncolour = "blue"\nkeys = [\n  "a",\n  "b"]\n'
        )

        read = sources.from_file(path, KNOWN)

        assert read["outer.port"] == Given(1, f"{path}:2")
        assert read["outer.wait_s"] == Given(2.0, f"{path}:3")
        assert isinstance(read["outer.wait_s"].value, float)
        assert read["outer.path"].value == Path("/x")
        assert read["inner.colour"] == Given(Colour.BLUE, f"{path}:11")
        assert read["inner.keys"] == Given(("a", "b"), f"{path}:12")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "[outer]\n\nprot = 1\n",
                'rtts.toml:3: there is no setting "outer.prot"; did you mean "outer.port"?',
            ),
            ("port = 1\n", 'rtts.toml:1: there is no setting "port"; did you mean "outer.port"?'),
            (
                "[outre]\nport = 1\n",
                'rtts.toml:1: there is no setting "outre"; did you mean "outer"?',
            ),
            ("zzz = 1\n", 'rtts.toml:1: there is no setting "zzz"'),
            (
                "outer = 1\n",
                "rtts.toml:1: outer is a group of settings, not a value: write [outer]",
            ),
            (
                '[outer]\nport = "8765"\n',
                "rtts.toml:2: outer.port must be a whole number, not '8765'",
            ),
            ("[outer]\nport = true\n", "rtts.toml:2: outer.port must be a whole number, not true"),
            ("[outer]\nport = 1.5\n", "rtts.toml:2: outer.port must be a whole number, not 1.5"),
            (
                '[outer]\nwait_s = "5m"\n',
                "rtts.toml:2: outer.wait_s must be a number (seconds), 0 or more, not '5m'",
            ),
            (
                "[outer]\nwait_s = -1\n",
                "rtts.toml:2: outer.wait_s must be a number (seconds), 0 or more, not -1",
            ),
            (
                "[outer]\nwait_s = nan\n",
                "rtts.toml:2: outer.wait_s must be a number (seconds), 0 or more, not nan",
            ),
            (
                "[outer]\nmax_things = -1\n",
                "rtts.toml:2: outer.max_things must be a whole number, 0 or more, not -1",
            ),
            (
                '[outer]\nmode = "quick"\n',
                'rtts.toml:2: outer.mode must be one of "slow", "fast", not \'quick\'',
            ),
            (
                '[inner]\nkeys = "a"\n',
                "rtts.toml:2: inner.keys must be a list, each a string, not 'a'",
            ),
            (
                '[inner]\nkeys = ["a", 1]\n',
                "rtts.toml:2: inner.keys must be a list, each a string, not ['a', 1]",
            ),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, message: str) -> None:
        """A mistake is one line: the place, the key, what is allowed, what was probably meant."""
        assert file_error(tmp_path, text) == message

    def test_secret_is_not_repeated(self, tmp_path: Path) -> None:
        """A complaint about a secret does not show it."""
        assert "hunter2" not in file_error(tmp_path, '[inner]\napi_keys = "hunter2"\n')

    def test_hidden_secret_is_none(self, tmp_path: Path) -> None:
        """What `rtts config` shows for a secret is not accepted as one."""
        message = file_error(tmp_path, '[inner]\napi_keys = ["a", "(hidden)"]\n')
        assert message.startswith("rtts.toml:2: inner.api_keys is hidden where this was copied")
        assert "hidden" in env_error("RTTS_INNER_API_KEYS", "(hidden)")

    def test_not_toml(self, tmp_path: Path) -> None:
        """A file that is not TOML is refused with the parser's line."""
        assert "line 2" in file_error(tmp_path, "[outer]\nport = = 1\n")

    def test_not_utf8(self, tmp_path: Path) -> None:
        """A file that is not UTF-8 is refused."""
        path = tmp_path / "rtts.toml"
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(ConfigError, match="not UTF-8"):
            sources.from_file(path, KNOWN)

    def test_directory(self, tmp_path: Path) -> None:
        """A path that cannot be read is refused."""
        with pytest.raises(ConfigError, match="cannot be read"):
            sources.from_file(tmp_path, KNOWN)

    @given(
        st.lists(st.sampled_from(["", "# c", "x = 1", 's = """\na\n"""', "[t]", "a = [\n1,\n2]"]))
    )
    @settings(max_examples=50)
    def test_line_is_where_the_key_stands(self, before: list[str]) -> None:
        """Whatever stands before a key, its reported line is the one that names it."""
        seen: set[str] = set()
        unique = [b for b in before if b in ("", "# c") or not (b in seen or seen.add(b))]
        text = "\n".join([*unique, "[last]", "wanted = 1"])
        tomllib.loads(text)

        line = sources._line_of("last.wanted", text)

        assert text.split("\n")[line - 1] == "wanted = 1"


class TestEnvironment:
    @pytest.mark.parametrize(
        ("name", "text", "key", "value"),
        [
            ("RTTS_OUTER_PORT", "1", "outer.port", 1),
            ("RTTS_OUTER_WAIT_S", "0.25", "outer.wait_s", 0.25),
            ("RTTS_OUTER_ON", "Yes", "outer.on", True),
            ("RTTS_OUTER_ON", "0", "outer.on", False),
            ("RTTS_OUTER_MAYBE", "", "outer.maybe", None),
            ("RTTS_OUTER_MAYBE_S", "", "outer.maybe_s", None),
            ("RTTS_OUTER_PATH", "/x", "outer.path", Path("/x")),
            ("RTTS_INNER_COLOUR", "blue", "inner.colour", Colour.BLUE),
            ("RTTS_INNER_KEYS", "a, b,", "inner.keys", ("a", "b")),
        ],
    )
    def test_text_is_parsed(self, name: str, text: str, key: str, value: object) -> None:
        """Every type of setting can be written as text."""
        assert sources.from_env({name: text}, KNOWN) == {key: Given(value, name)}

    def test_others_are_not_ours(self) -> None:
        """Variables without the prefix, and the one that names the file, are left alone."""
        assert sources.from_env({"PATH": "/bin", "RTTS_CONFIG": "x", "rtts_x": ""}, KNOWN) == {}

    @pytest.mark.parametrize("text", ["", "x", "1.5", "inf", "0x10"])
    def test_not_a_number(self, text: str) -> None:
        """Text that is no whole number is refused, the empty one too."""
        message = env_error("RTTS_OUTER_PORT", text)
        assert message == f"RTTS_OUTER_PORT: outer.port must be a whole number, not {text!r}"

    @pytest.mark.parametrize("name", ["RTTS_INNER_KEYS", "RTTS_INNER_API_KEYS"])
    def test_a_list_in_brackets_is_refused(self, name: str) -> None:
        """Brackets as in the file would become part of the first item: a key nobody has."""
        message = env_error(name, '["k1", "k2"]')
        assert "must be a list" in message

    def test_unknown(self) -> None:
        """An unknown variable names the nearest one."""
        assert env_error("RTTS_OUTER_PROT", "1") == (
            'RTTS_OUTER_PROT: there is no such setting; did you mean "RTTS_OUTER_PORT"?'
        )

    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("RTTS_OUTER_PORT", "tcp://10.0.0.1:80"),
            ("RTTS_PORT_80_TCP_ADDR", "10.0.0.1"),
            ("RTTS_SERVICE_HOST", "10.0.0.1"),
        ],
    )
    def test_kubernetes(self, name: str, text: str) -> None:
        """What Kubernetes injects for a service named rtts is explained, not just refused."""
        assert "enableServiceLinks" in env_error(name, text)

    @given(st.text(max_size=8), st.sampled_from(sorted(KNOWN)))
    @example("~0", "outer.path")  # the home of a user there is not
    def test_any_text_is_taken_or_refused(self, text: str, key: str) -> None:
        """Any text for any setting gives a value of its type or a ConfigError, nothing else."""
        try:
            sources.from_env({KNOWN[key].env: text}, KNOWN)
        except ConfigError as error:
            assert KNOWN[key].env in error.message


class TestFlags:
    def test_last_wins(self) -> None:
        """A repeated flag overrides the earlier one."""
        flags = [("--port", "outer.port", "1"), ("--set outer.port", "outer.port", "2")]
        assert sources.from_flags(flags, KNOWN) == {"outer.port": Given(2, "--set outer.port")}

    def test_unknown(self) -> None:
        """An unknown key names the flag and the nearest key."""
        with pytest.raises(ConfigError, match=r'--set x.port: .* did you mean "outer.port"'):
            sources.from_flags([("--set x.port", "x.port", "1")], KNOWN)

    def test_bad_value(self) -> None:
        """A bad value names the flag."""
        with pytest.raises(ConfigError, match=r"^--port: outer.port must be a whole number"):
            sources.from_flags([("--port", "outer.port", "x")], KNOWN)


class TestFindFile:
    def test_order(self, tmp_path: Path) -> None:
        """--config, then RTTS_CONFIG, then ./rtts.toml, then ~/.config/rtts/rtts.toml."""
        cwd, home = tmp_path / "cwd", tmp_path / "home"
        user = home / ".config/rtts/rtts.toml"
        user.parent.mkdir(parents=True)
        cwd.mkdir()

        assert sources.find_file(None, {}, cwd, home) is None
        user.touch()
        assert sources.find_file(None, {}, cwd, home) == user
        (cwd / "rtts.toml").touch()
        assert sources.find_file(None, {}, cwd, home) == cwd / "rtts.toml"
        named, flagged = tmp_path / "env.toml", tmp_path / "flag.toml"
        named.touch()
        flagged.touch()
        env = {"RTTS_CONFIG": str(named)}
        assert sources.find_file(None, env, cwd, home) == named
        assert sources.find_file(flagged, env, cwd, home) == flagged

    def test_config_home(self, tmp_path: Path) -> None:
        """XDG_CONFIG_HOME replaces ~/.config."""
        path = tmp_path / "rtts/rtts.toml"
        path.parent.mkdir()
        path.touch()
        found = sources.find_file(None, {"XDG_CONFIG_HOME": str(tmp_path)}, tmp_path, tmp_path)
        assert found == path

    def test_without_a_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A user id that no user has, without HOME, as containers have them, has the defaults."""
        monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
        monkeypatch.delenv("HOME")
        with pytest.raises(RuntimeError):
            Path.home()
        monkeypatch.chdir(tmp_path)
        assert load(env={}).file is None
        flags = [("--set", "audio.opus_library", "~/opus.so")]
        with pytest.raises(ConfigError, match="must be a path"):
            load(env={}, flags=flags)
        assert data_dir(env={}) == Path("/.local/share/rtts")

    def test_home_of_somebody_else(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A home that this user may not look into holds no settings."""

        def refuse(path: object, **_: object) -> object:
            raise PermissionError(13, "Permission denied", str(path))

        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", refuse)
            found = sources.find_file(None, {}, tmp_path, tmp_path)
        assert found is None

    @pytest.mark.parametrize("by", ["--config", "RTTS_CONFIG"])
    def test_named_file_must_exist(self, tmp_path: Path, by: str) -> None:
        """A file that was asked for and is not there is an error, not a default."""
        missing = tmp_path / "no.toml"
        env = {"RTTS_CONFIG": str(missing)} if by == "RTTS_CONFIG" else {}
        with pytest.raises(ConfigError, match=f"^{by}: there is no file"):
            sources.find_file(missing if not env else None, env, tmp_path, tmp_path)


def strategy_of(setting: Setting) -> st.SearchStrategy[object]:
    inner = values._members(setting.type)[0]
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    least = 0 if values._is_amount(setting) else None
    by_type: dict[object, st.SearchStrategy[object]] = {
        int: st.integers(min_value=least, max_value=2**40),
        float: st.floats(min_value=least, allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: text,
        Path: text.filter(lambda t: "~" not in t and "\0" not in t).map(Path),
    }
    choices = values._choices(inner)
    if choices is not None:
        return st.sampled_from(list(choices.values()))
    return by_type[inner] if inner in by_type else st.lists(text, max_size=3).map(tuple)


@given(st.data())
def test_shown_settings_read_back(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """What `rtts config` prints, with or without comments, is a file with the same settings."""
    chosen = data.draw(st.sets(st.sampled_from(sorted(set(KNOWN) - {"inner.api_keys"}))))
    given_ = {key: Given(data.draw(strategy_of(KNOWN[key])), "test") for key in chosen}
    path = tmp_path_factory.mktemp("toml") / "rtts.toml"
    for origins in (True, False):
        path.write_text(render.toml(KNOWN, given_, origins=origins), newline="")

        read = sources.from_file(path, KNOWN)

        for key, setting in KNOWN.items():
            expected = given_[key].value if key in given_ else setting.default
            assert expected == (read[key].value if key in read else None), key


class TestRender:
    def test_origins_and_secrets(self) -> None:
        """Each value says where it is from; secrets are counted, never shown."""
        given_ = {
            "outer.port": Given(1, "--port"),
            "inner.api_keys": Given(("hunter2", "swordfish"), "RTTS_INNER_API_KEYS"),
        }
        shown = render.toml(KNOWN, given_, origins=True)

        assert "port = 1  # --port\n" in shown
        assert "wait_s = 0.5  # default\n" in shown
        assert 'api_keys = ["(hidden)", "(hidden)"]  # RTTS_INNER_API_KEYS\n' in shown
        assert "# maybe is not set\n" in shown
        assert "hunter2" not in shown + str(render.as_data(KNOWN, given_))

    def test_fingerprint(self) -> None:
        """The fingerprint is of values: it ignores where they come from, and sees every change."""
        one = render.fingerprint(KNOWN, {"outer.port": Given(1, "--port")})
        assert one == render.fingerprint(KNOWN, {"outer.port": Given(1, "rtts.toml:1")})
        assert one != render.fingerprint(KNOWN, {"outer.port": Given(2, "--port")})

    def test_table(self) -> None:
        """The table of the docs says what a setting takes, its default and its sentence."""
        rows = render.table(KNOWN.values()).splitlines()
        assert "| `outer.wait_s` | a number (seconds), 0 or more | `0.5` | A wait. |" in rows
        assert '| `outer.mode` | one of "slow", "fast" | `"slow"` | A mode. |' in rows
