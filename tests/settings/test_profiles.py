from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rtts.cli import main
from rtts.errors import ConfigError
from rtts.settings import Settings, all_settings, load, profiles

NAMED = [name for name, profile in profiles.PROFILES.items() if profile.values]


@pytest.fixture
def resolve(tmp_path: Path) -> Callable[..., object]:
    """`load` on a machine on which nobody has set anything."""

    def run(**rest: object) -> object:
        return load(**{"env": {}, "cwd": tmp_path, "home": tmp_path, **rest})

    return run


class TestContents:
    @pytest.mark.parametrize("name", profiles.PROFILES)
    def test_every_profile_can_be_used(self, resolve: Callable[..., object], name: str) -> None:
        """Its keys exist, its values fit, the parts take them, and each arrives where it belongs."""
        resolved = resolve(flags=[("--profile", "engine.profile", name)])
        shown = resolved.as_data()
        for key, value in profiles.PROFILES[name].values.items():
            assert shown[key] == {"value": value, "origin": f"profile {name}"}
        others = [key for key, one in shown.items() if one["origin"].startswith("profile ")]
        assert sorted(others) == sorted(profiles.PROFILES[name].values)

    @pytest.mark.parametrize("name", NAMED)
    def test_no_value_is_the_built_in_one(self, name: str) -> None:
        """A profile says what it changes, and nothing else."""
        known = all_settings()
        values = profiles.given_by(name, known)
        assert [key for key, one in values.items() if one.value == known[key].default] == []

    def test_choices_are_the_profiles(self) -> None:
        """`engine.profile` takes exactly the profiles there are, and balanced is the default."""
        setting = all_settings()[profiles.KEY]
        assert set(setting.type.__args__) == set(profiles.PROFILES)
        assert setting.default == "balanced"
        assert not profiles.PROFILES["balanced"].values


class TestRank:
    @pytest.mark.parametrize("source", ["file", "environment", "flag"])
    def test_what_is_set_by_itself_wins(
        self, resolve: Callable[..., object], tmp_path: Path, source: str
    ) -> None:
        """A profile is above the built-in values and below each other source, named anywhere."""
        given: dict[str, object] = {}
        if source == "file":
            file = tmp_path / "rtts.toml"
            file.write_text('[engine]\nprofile = "quality"\n[session]\nopus_bitrate = 16000\n')
        elif source == "environment":
            given["env"] = {
                "RTTS_ENGINE_PROFILE": "quality",
                "RTTS_SESSION_OPUS_BITRATE": "16000",
            }
        else:
            given["flags"] = [
                ("--set", "session.opus_bitrate", "16000"),
                ("--profile", "engine.profile", "quality"),
            ]
        settings = resolve(**given).settings
        assert settings.session.opus_bitrate == 16_000
        assert settings.session.opus_complexity == 10

    def test_a_later_profile_replaces_an_earlier_one(
        self, resolve: Callable[..., object], tmp_path: Path
    ) -> None:
        """Of two profiles one counts, whole: nothing of the file's is left under the flag's."""
        (tmp_path / "rtts.toml").write_text('[engine]\nprofile = "quality"\n')
        settings = resolve(flags=[("--profile", "engine.profile", "balanced")]).settings
        assert settings == Settings()

    def test_a_commands_own_profile_yields(self, resolve: Callable[..., object]) -> None:
        """What a command takes by itself gives way to one that is named anywhere."""
        assert resolve(profile="throughput").settings.qwen.slots == "auto"
        env = {"RTTS_ENGINE_PROFILE": "realtime"}
        settings = resolve(profile="throughput", env=env).settings
        assert (settings.engine.profile, settings.qwen.slots) == ("realtime", 8)

    def test_an_unknown_one_is_an_error(self, resolve: Callable[..., object]) -> None:
        """A name that is none says which there are."""
        with pytest.raises(ConfigError, match=r'^--profile: .*"throughput".*not .fast.'):
            resolve(flags=[("--profile", "engine.profile", "fast")])


def test_config_shows_what_came_from_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`rtts config --profile` prints each value with the profile as its origin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["config", "--profile", "throughput", "--slots", "3", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["settings"]
    assert shown["qwen.slots"] == {"value": 3, "origin": "--slots"}
    assert shown["qwen.waiting"] == {"value": 1024, "origin": "profile throughput"}


@pytest.mark.parametrize(
    ("text", "value"), [("auto", "auto"), ("3", 3), ("x", None), ("", None), ("1.5", None)]
)
def test_a_number_or_a_word(
    resolve: Callable[..., object], tmp_path: Path, text: str, value: object
) -> None:
    """`qwen.slots` takes a whole number or "auto", as text and in a file."""
    file = tmp_path / "rtts.toml"
    shown = text if isinstance(value, int) or text == "1.5" else f'"{text}"'
    file.write_text(f"[qwen]\nslots = {shown}\n")
    if value is None:
        for given in ({"flags": [("--slots", "qwen.slots", text)]}, {"config": file}):
            with pytest.raises(ConfigError, match=r"qwen\.slots must be a whole number or one of"):
                resolve(**{"cwd": tmp_path / "none", **given})
        return
    assert resolve(cwd=tmp_path / "none", config=file).settings.qwen.slots == value
    flagged = resolve(cwd=tmp_path / "none", flags=[("--slots", "qwen.slots", text)])
    assert flagged.settings.qwen.slots == value
