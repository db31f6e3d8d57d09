from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from rtts import settings as rtts_settings
from rtts.errors import ConfigError
from rtts.settings import Settings, all_settings, load
from rtts.settings.schema import summary_of


@pytest.fixture
def empty(tmp_path: Path) -> dict[str, object]:
    """Arguments of `load` for a machine on which nobody has set anything."""
    return {"env": {}, "cwd": tmp_path, "home": tmp_path}


class TestDefaults:
    def test_nothing_set(self, empty: dict[str, object]) -> None:
        """Where nothing is set, the settings are the parts' own defaults."""
        resolved = load(**empty)
        assert resolved.settings == Settings()
        assert resolved.file is None

    def test_every_setting_is_explained(self) -> None:
        """Every setting has a sentence, and every group too."""
        assert [key for key, one in all_settings().items() if not one.sentence] == []
        groups = {key.partition(".")[0] for key in all_settings()}
        assert [group for group in groups if not summary_of(Settings, group)] == []

    def test_variables_are_distinct(self) -> None:
        """No two settings share an environment variable."""
        names = [setting.env for setting in all_settings().values()]
        assert len(names) == len(set(names))

    def test_secrets_are_known(self) -> None:
        """Whatever is a key, and nothing else, is hidden."""
        secret = {key for key, one in all_settings().items() if one.is_secret}
        assert secret == {"server.api_keys", "client.api_key"}

    def test_shown_file_is_complete(self, empty: dict[str, object], tmp_path: Path) -> None:
        """The file that `rtts config` prints sets everything to what it was."""
        resolved = load(**empty, flags=[("--port", "server.port", "1")])
        file = tmp_path / "printed.toml"
        file.write_text(resolved.as_toml())

        again = load(**empty, config=file)

        assert again.settings == resolved.settings
        assert again.fingerprint() == resolved.fingerprint()


class TestOrder:
    def test_later_sources_win(self, empty: dict[str, object], tmp_path: Path) -> None:
        """defaults < file < environment < flags, setting by setting; each knows its origin."""
        file = tmp_path / "rtts.toml"
        file.write_text("[server]\nport = 1\ndrain_timeout_s = 1\nmax_sessions = 1\n")
        env = {"RTTS_SERVER_PORT": "2", "RTTS_SERVER_DRAIN_TIMEOUT_S": "2"}
        resolved = load(**{**empty, "env": env}, flags=[("--port", "server.port", "3")])

        server = resolved.settings.server
        assert (server.port, server.drain_timeout_s, server.max_sessions) == (3, 2.0, 1)
        origins = {key: one.origin for key, one in resolved.given.items()}
        assert origins == {
            "server.port": "--port",
            "server.drain_timeout_s": "RTTS_SERVER_DRAIN_TIMEOUT_S",
            "server.max_sessions": f"{file}:4",
        }

    def test_mistakes_count_even_if_overridden(
        self, empty: dict[str, object], tmp_path: Path
    ) -> None:
        """A wrong value in the file is an error, also where a flag would override it."""
        (tmp_path / "rtts.toml").write_text('[server]\nport = "x"\n')
        with pytest.raises(ConfigError, match=r"rtts\.toml:2"):
            load(**empty, flags=[("--port", "server.port", "3")])


class TestParts:
    @pytest.mark.parametrize(
        ("variable", "text"),
        [
            ("RTTS_ENGINE_WORKERS", "0"),
            ("RTTS_SESSION_OPUS_COMPLEXITY", "11"),
            ("RTTS_SESSION_MAX_CONTEXTS", "0"),
            ("RTTS_SESSION_BUDGET_S", "0"),
            ("RTTS_TONE_CHUNK_S", "5"),
            ("RTTS_TONE_VOICES", "alto"),
        ],
    )
    def test_parts_own_checks_name_the_place(
        self, empty: dict[str, object], variable: str, text: str
    ) -> None:
        """A value of the right type that its part refuses is reported with its origin."""
        with pytest.raises(ConfigError, match=f"^{variable}: ") as caught:
            load(**{**empty, "env": {variable: text}})
        assert "\n" not in caught.value.message

    def test_every_group_is_frozen(self) -> None:
        """Settings are values: nobody can change them after start."""
        for field in dataclasses.fields(Settings):
            group = getattr(Settings(), field.name)
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(group, dataclasses.fields(group)[0].name, None)

    def test_no_engine_is_imported(self) -> None:
        """Reading settings loads no model runtime: it takes a fraction of a second."""
        code = (
            "import sys, rtts.settings;"
            "print([m for m in ('onnxruntime', 'torch', 'hibari') if m in sys.modules])"
        )
        root = Path(rtts_settings.__file__).parents[2]
        run = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True
        )
        assert run.stdout.strip() == "[]"


class TestTables:
    """Settings that are tables of strings."""

    def test_from_a_file(self, empty: dict[str, object], tmp_path: Path) -> None:
        """A TOML table is the value, quoted keys and all, and is shown so that it can be read back."""
        (tmp_path / "rtts.toml").write_text('[aliases.voices]\nalloy = "heart"\n"*-x" = ""\n')
        resolved = load(**empty)
        assert resolved.settings.aliases.voices == {"alloy": "heart", "*-x": ""}
        (tmp_path / "rtts.toml").write_text(resolved.as_toml())
        assert load(**empty).settings.aliases.voices == {"alloy": "heart", "*-x": ""}

    def test_from_text(self, empty: dict[str, object]) -> None:
        """In the environment it is name=value, with commas between."""
        env = {"RTTS_ALIASES_VOICES": "alloy=heart, *=heart, echo="}
        voices = load(**{**empty, "env": env}).settings.aliases.voices
        assert voices == {"alloy": "heart", "*": "heart", "echo": ""}

    @pytest.mark.parametrize("text", ["alloy", "=heart", "alloy=heart, nova"])
    def test_wrong_text(self, empty: dict[str, object], text: str) -> None:
        """What is no table is refused with what one looks like."""
        with pytest.raises(ConfigError, match="RTTS_ALIASES_VOICES.*name=value"):
            load(**{**empty, "env": {"RTTS_ALIASES_VOICES": text}})

    @pytest.mark.parametrize("value", ['"alloy=heart"', "{alloy = 1}", '["alloy"]'])
    def test_wrong_values(self, empty: dict[str, object], tmp_path: Path, value: str) -> None:
        """A file holds a table, and its values are strings."""
        (tmp_path / "rtts.toml").write_text(f"[aliases]\nvoices = {value}\n")
        with pytest.raises(ConfigError, match=r"rtts.toml:2: aliases.voices must be a table"):
            load(**empty)
