"""Writes the tables of docs/operations.md that the code knows best: settings and metrics.

    python docs/tables.py        rewrite what stands between the `begin` and `end` comments

`tests/test_docs.py` fails when the page is not what this would write.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from rtts.metrics import Metrics
from rtts.settings import Settings, all_settings, render
from rtts.settings.schema import summary_of

PAGE = Path(__file__).with_name("operations.md")


def settings_section() -> str:
    """A heading, a sentence and a table for each group of settings."""
    sections = []
    known = all_settings()
    for group, members in itertools.groupby(known.values(), lambda s: s.key.partition(".")[0]):
        summary = summary_of(Settings, group)
        sections.append(f"### {group}\n\n{summary}\n\n{render.table(members)}")
    return "\n".join(sections)


def metrics_section() -> str:
    """A table of every metric."""
    rows = ["| metric | kind | labels | means |", "|---|---|---|---|"]
    # The registry lists what it collects; a labelled metric keeps its label names to itself.
    metrics = Metrics(budget_s=0.5, version="")
    labels = {
        metric._name: metric._labelnames
        for metric in vars(metrics).values()
        if hasattr(metric, "_labelnames")
    }
    for family in sorted(metrics.registry.collect(), key=lambda f: f.name):
        name = family.name + ("_total" if family.type == "counter" else "")
        names = ", ".join(f"`{label}`" for label in labels[family.name])
        rows.append(f"| `{name}` | {family.type} | {names} | {family.documentation} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str) -> str:
    """The page with its tables made afresh."""
    for name, section in (("settings", settings_section()), ("metrics", metrics_section())):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        assert found and closed, f"{PAGE.name} has no place for the {name} table"
        page = f"{before}{begin}\n{section}{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
