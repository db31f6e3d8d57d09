"""Writes the tables of the documents that the code knows best, from settings to benchmarks.

    python docs/tables.py        rewrite what stands between the `begin` and `end` comments

`tests/test_docs.py` fails when a page is not what this would write.
"""

from __future__ import annotations

import ast
import itertools
import math
from pathlib import Path

from prometheus_client import Histogram

from rtts.metrics import Metrics
from rtts.settings import Settings, all_settings, profiles, render
from rtts.settings.schema import summary_of

DOCS = Path(__file__).resolve().parent
BENCHMARKS = DOCS.parent / "benchmarks"


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
    return "\n".join([*rows, "", *_bucket_lines(metrics)]) + "\n"


def _bucket_lines(metrics: Metrics) -> list[str]:
    """The bounds of the histograms, once for all that share them."""
    sharing: dict[tuple[float, ...], list[str]] = {}
    for metric in vars(metrics).values():
        if isinstance(metric, Histogram):
            bounds = tuple(bound for bound in metric._upper_bounds if bound != math.inf)
            sharing.setdefault(bounds, []).append(f"`{metric._name}`")
    return [
        f"- Buckets of {', '.join(sorted(names))}: {' '.join(f'{bound:g}' for bound in bounds)}"
        for bounds, names in sharing.items()
    ]


def decisions_section() -> str:
    """A table of the decisions, from their first lines."""
    rows = ["| no. | decision |", "|---|---|"]
    for path in sorted(DOCS.glob("adr/0*.md")):
        number, _, title = path.read_text(encoding="utf-8").splitlines()[0][2:].partition(" ")
        rows.append(f"| [{number}]({path.name}) | {title} |")
    return "\n".join(rows) + "\n"


def scripts_section() -> str:
    """A table of the benchmarks, from the first lines of their docstrings."""
    rows = ["| script | what it measures |", "|---|---|"]
    for path in sorted(BENCHMARKS.glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "__main__" in text:
            first = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")[0]
            rows.append(f"| [{path.name}]({path.name}) | {' '.join(first.split())} |")
    return "\n".join(rows) + "\n"


SECTIONS = {
    DOCS / "operations.md": {
        "profiles": profiles.table,
        "settings": settings_section,
        "metrics": metrics_section,
    },
    DOCS / "adr/README.md": {"decisions": decisions_section},
    BENCHMARKS / "README.md": {"scripts": scripts_section},
}


def with_tables(path: Path) -> str:
    """A page with its tables made afresh."""
    page = path.read_text(encoding="utf-8")
    for name, section in SECTIONS[path].items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        before, found, rest = page.partition(begin)
        _, closed, after = rest.partition(end)
        assert found and closed, f"{path.name} has no place for the {name} table"
        page = f"{before}{begin}\n{section()}{end}{after}"
    return page


if __name__ == "__main__":
    for path in SECTIONS:
        path.write_text(with_tables(path), encoding="utf-8")
