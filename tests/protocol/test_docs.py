from __future__ import annotations

import ast
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from rtts.protocol import events
from rtts.protocol.native import NativeCodec
from tests.protocol.strategies import CLIENT_TYPES, SERVER_TYPES

DOCS = Path(__file__).parents[2] / "docs" / "protocol"
PAGE = (DOCS / "rtts-v1.md").read_text(encoding="utf-8")
EXAMPLES = [line for line in PAGE.splitlines() if re.match(r"[→←] \{", line)]


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


def known_fields(cls: type, fields: dict[str, Any]) -> None:
    info = msgspec.inspect.type_info(cls)
    assert isinstance(info, msgspec.inspect.StructType)
    types = {field.encode_name: field.type for field in info.fields}
    assert set(fields) - {"type"} <= set(types)
    for name, value in fields.items():
        if isinstance(value, dict) and isinstance(types[name], msgspec.inspect.StructType):
            known_fields(types[name].cls, value)


def test_the_tables_are_those_of_the_types() -> None:
    """`python docs/protocol/generate.py` would change nothing."""
    assert GENERATOR.render(PAGE) == PAGE


@pytest.mark.parametrize("cls", [*CLIENT_TYPES, *SERVER_TYPES])
def test_every_message_has_its_table(cls: type) -> None:
    """No message is missing from the page, and none lacks a heading with its type word."""
    assert f"<!-- {cls.__name__} -->\n" in PAGE
    tag = cls.__struct_config__.tag  # type: ignore[attr-defined]
    assert tag == "audio" or f"\n### {tag}\n" in PAGE


def test_every_part_has_its_table() -> None:
    """Tables link to the parts of messages; each link has its heading."""
    for link in re.findall(r"\]\(#([\w-]+)\)", PAGE):
        headings = {
            re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))
            for heading in re.findall(r"^#+ (.+)$", PAGE, re.MULTILINE)
        }
        assert link in headings


def test_a_renamed_field_would_be_noticed() -> None:
    """A page that says something else than the types is rendered differently."""
    assert GENERATOR.render(PAGE.replace("| `pts` |", "| `position` |")) == PAGE
    assert PAGE.count("| `pts` |") == 2


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_is_a_message(line: str) -> None:
    """Each example decodes as a message of its direction, without a field that does not exist."""
    body = line[2:]
    if line[0] == "→":
        message: Any = NativeCodec().decode(body)
    else:
        message = msgspec.json.decode(body, type=events.AnyServerMessage)
    known_fields(type(message), json.loads(body))


def test_there_are_examples() -> None:
    """The pattern above finds them."""
    assert len(EXAMPLES) > 20


def test_the_python_example_is_python() -> None:
    """The hello world compiles; the end-to-end tests run it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    compile(code, "rtts-v1.md", "exec")


def warning_codes(tree: ast.AST) -> set[str]:
    """The literal codes of every warning made in a module."""
    makers = {"warn", "Warned", "SegmentSkipped", "SegmentWarned"}
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
        if name in makers:
            values = [*call.args, *(keyword.value for keyword in call.keywords)]
            literals = [v.value for v in values if isinstance(v, ast.Constant)]
            found |= {v for v in literals if isinstance(v, str) and re.fullmatch(r"[a-z_]+", v)}
    return found


def test_every_warning_code_is_listed() -> None:
    """The codes the session and the engines warn with are the ones the page explains."""
    root = DOCS.parents[1] / "rtts"
    paths = [path for folder in ("session", "engine") for path in (root / folder).rglob("*.py")]
    codes = {
        code
        for path in paths
        for code in warning_codes(ast.parse(path.read_text(encoding="utf-8")))
    }
    section = PAGE.partition("\n### warning\n")[2].partition("\n### ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section.partition("| code | meaning")[2], re.MULTILINE)
    assert codes == set(listed)
