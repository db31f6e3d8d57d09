"""The documents say what the code does: tables, links, names, examples."""

from __future__ import annotations

import importlib.util
import json
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from rtts import errors
from rtts.protocol.error_table import ERROR_TABLE
from rtts.settings import all_settings

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("benchmarks/*.md"),
        *ROOT.glob("clients/*/*.md"),
        *ROOT.glob("deploy/*.md"),
    ]
)
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tables", ROOT / "docs/tables.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(pattern: str, text: str) -> set[str]:
    return set(re.findall(pattern, text))


def test_tables_are_current(tables: ModuleType) -> None:
    """The tables of settings, metrics and decisions are what the code has."""
    for path in tables.SECTIONS:
        assert tables.with_tables(path) == path.read_text("utf-8"), f"{path.name}: run make docs"


class TestOperations:
    def test_every_error_is_explained(self) -> None:
        """Each error code has exactly one row that says what to do, and no other code has one."""
        section = OPERATIONS.partition("## Errors")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
        assert sorted(rows) == sorted(row.code for row in ERROR_TABLE)

    def test_every_error_has_a_row_on_the_wire(self) -> None:
        """Every class of the taxonomy has its row in the error table, and no row is without one."""
        classes = [each for each in vars(errors).values() if isinstance(each, type)]
        codes = {each.code for each in classes if issubclass(each, errors.RttsError)}
        assert codes == {row.code for row in ERROR_TABLE}

    def test_settings_exist(self) -> None:
        """Every setting that any page names is one."""
        known = all_settings()
        groups = {key.partition(".")[0] for key in known}
        for page in PAGES:
            pattern = rf"`((?:{'|'.join(groups)})\.[a-z_]+)`"
            named = words(pattern, page.read_text("utf-8"))
            missing = {name for name in named if name not in known and not name.endswith(".py")}
            assert missing == set(), page.name

    def test_variables_exist(self) -> None:
        """Every RTTS_ variable that any page names is one."""
        known = {setting.env for setting in all_settings().values()} | {"RTTS_CONFIG", "RTTS_"}
        for page in PAGES:
            assert words(r"\bRTTS_[A-Z_]*", page.read_text("utf-8")) <= known, page.name

    def test_metrics_exist(self, tables: ModuleType) -> None:
        """Every metric that any page names is one."""
        known = words(r"`(rtts_\w+)`", tables.metrics_section()) | {"rtts_client"}
        for page in PAGES:
            assert words(r"`(rtts_\w+)`", page.read_text("utf-8")) <= known, page.name


class TestLinks:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
    def test_links_lead_somewhere(self, page: Path) -> None:
        """Every relative link leads to a file, and its anchor to a heading."""
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            name, _, anchor = target.partition("#")
            file = (page.parent / name) if name else page
            assert file.exists(), f"{target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", file.read_text("utf-8"), re.MULTILINE)
                slugs = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
                assert anchor in slugs, target


class TestFigures:
    @pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
    def test_figures_can_be_repeated(self, page: Path) -> None:
        """Every benchmark that a page names is there, and so is the script of every result."""
        text = page.read_text(encoding="utf-8")
        for script in words(r"python (benchmarks/[\w/]+\.py)", text):
            assert (ROOT / script).exists(), script
        for result in words(r"benchmarks/(results/[^)\s]+\.json)", text):
            made_by = json.loads((ROOT / "benchmarks" / result).read_text("utf-8"))["benchmark"]
            assert (ROOT / f"benchmarks/{made_by}.py").exists(), result


class TestDecisions:
    @pytest.mark.parametrize("path", sorted(ROOT.glob("docs/adr/0*.md")), ids=lambda p: p.stem)
    def test_form(self, path: Path) -> None:
        """A decision fits a page, names alternatives, and what would change our mind."""
        text = path.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 40
        assert text.startswith(f"# {path.name[:4]} ")
        for heading in ("## Context", "## Decision", "## Alternatives", "## What would change"):
            assert heading in text


class TestProject:
    def test_third_parties_are_named(self) -> None:
        """Every package rtts installs is in THIRD_PARTY.md."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        notices = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
        extras = project.get("optional-dependencies", {}).values()
        for requirement in [
            *project["dependencies"],
            *(each for extra in extras for each in extra),
        ]:
            name = re.match(r"[\w-]+", requirement)
            assert name is not None and name[0] in notices, requirement

    def test_plain_torch_is_never_pulled(self) -> None:
        """Nothing that pip resolves by default may be torch: its wheel brings 3 GB of CUDA."""
        project = tomllib.loads((ROOT / "pyproject.toml").read_text())
        wanted = [*project["project"]["dependencies"]]
        wanted += [str(each) for group in project["dependency-groups"].values() for each in group]
        assert [each for each in wanted if re.match(r"torch\b", each)] == []

    def test_licence_is_whole(self) -> None:
        """LICENSE is the text of apache.org, byte for byte."""
        import hashlib

        digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
        assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
