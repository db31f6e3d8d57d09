"""Flags that stand for settings, and the ones every command has."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rtts.settings import Resolved

Commands = Any  # argparse's _SubParsersAction, which typeshed knows under a private name only


class _SetSetting(argparse.Action):
    """Collects (flag, key, text) in `settings`; a key of "" means that the text is KEY=VALUE."""

    def __init__(self, *, key: str, **rest: Any) -> None:
        super().__init__(**rest)
        self._key = key

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        text = "true" if self.nargs == 0 else str(values)
        key, flag = self._key, str(option_string)
        if not key:
            key, equals, text = text.partition("=")
            if not equals:
                parser.error(f"{flag} takes KEY=VALUE, for example session.budget_s=0.3")
            flag = f"{flag} {key}"
        given = getattr(namespace, self.dest) or []
        setattr(namespace, self.dest, [*given, (flag, key, text)])


def add_command(commands: Commands, name: str, summary: str, more: str = "") -> Any:
    """Declare a command with the flags every command has."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.{more}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    group = parser.add_argument_group("settings")
    group.add_argument(
        "--config", metavar="FILE", type=Path, help="read this file instead of rtts.toml"
    )
    add_setting(group, "--set", "", metavar="KEY=VALUE", help="any setting of `rtts config`")
    parser.set_defaults(parser=parser)
    return parser


def refuse_unknown(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> NoReturn:
    """End the program over arguments that the command does not know, with what may be meant."""
    known = [flag for action in parser._actions for flag in action.option_strings]
    alike = difflib.get_close_matches(unknown[0].partition("=")[0], known, n=1)
    hint = f"; did you mean {alike[0]}?" if alike else ""
    parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def add_setting(parser: Any, flag: str, key: str, *, is_switch: bool = False, **rest: Any) -> None:
    """Declare a flag that stands for a setting."""
    if is_switch:
        rest["nargs"] = 0
    parser.add_argument(flag, action=_SetSetting, key=key, dest="settings", **rest)


def add_engine_flags(parser: Any) -> None:
    """Declare the flags of commands that may run an engine."""
    add_setting(parser, "--engine", "engine.kind", metavar="KIND", help="cpu (default), qwen, tone")
    add_setting(
        parser,
        "--profile",
        "engine.profile",
        metavar="NAME",
        help="a named set of settings: balanced, realtime, quality, throughput",
    )
    add_model_flags(parser)


def add_model_flags(parser: Any) -> None:
    """Declare the flags that say which checkpoint the qwen engine loads, and where it runs."""
    add_setting(
        parser,
        "--model",
        "qwen.model",
        metavar="NAME_OR_DIR",
        help="qwen: a checkpoint's folder, or a repository of the model hub",
    )
    add_setting(parser, "--device", "qwen.device", metavar="D", help="qwen: cpu (default), cuda")
    add_setting(
        parser, "--slots", "qwen.slots", metavar="N", help="qwen: how many at once, or auto"
    )


def resolve(arguments: argparse.Namespace, profile: str | None = None) -> Resolved:
    """Settings of a command, from file, environment and its flags.

    Args:
        profile: The one the command uses unless another is named.

    Raises:
        ConfigError: One of them is wrong.
    """
    from rtts.settings import load

    return load(config=arguments.config, flags=arguments.settings or (), profile=profile)
