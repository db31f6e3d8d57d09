"""What looking at one thing of this machine comes to."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        status: `ok`; `missing`: not there, and not needed; `problem`: something will not work.
        found: What is there, or what is wrong.
        remedy: What to do, where there is something to do.
    """

    name: str
    status: Literal["ok", "missing", "problem"]
    found: str
    remedy: str = ""


def version_of(package: str) -> str:
    """The version of an installed package, or ""."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
