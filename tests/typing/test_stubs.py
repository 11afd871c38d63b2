"""The stubs of the compiled modules say what the modules offer, no more and no less.

Names and parameter names are compared; types are not known at run time. A class that offers
nothing to Python (a helper that exports a buffer, say) needs no place in its stub.
"""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = tuple(importlib.machinery.EXTENSION_SUFFIXES)


def module_name(path: Path) -> str:
    return ".".join([*path.relative_to(ROOT).parent.parts, path.name.split(".")[0]])


STUBS = {module_name(path): path for path in sorted((ROOT / "kfast").rglob("*.pyi"))}
COMPILED = {
    module_name(path) for path in (ROOT / "kfast").rglob("*") if path.name.endswith(SUFFIXES)
}

IGNORED_METHODS = {"__buffer__", "__release_buffer__"}
"""Python has them from 3.12 on; before, a stub is the only place to say it."""

Signature = list[str] | None
"""Parameter names without ``self``; None for what is not called, or unknown."""


@dataclass(slots=True)
class Surface:
    """The public names of a module."""

    functions: dict[str, Signature] = field(default_factory=dict)
    classes: dict[str, dict[str, Signature]] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)


def is_public(name: str) -> bool:
    return not name.startswith("_")


# --- the stub -------------------------------------------------------------------------------------


def stub_parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    parts = [*arguments.posonlyargs, *arguments.args]
    parts += [arguments.vararg] if arguments.vararg else []
    parts += arguments.kwonlyargs
    parts += [arguments.kwarg] if arguments.kwarg else []
    return [part.arg for part in parts]


def stub_members(node: ast.ClassDef) -> dict[str, Signature]:
    members: dict[str, Signature] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            decorators = {ast.unparse(decorator) for decorator in item.decorator_list}
            names = stub_parameters(item)
            if any(text == "property" or text.endswith(".setter") for text in decorators):
                members[item.name] = None
            elif item.name not in IGNORED_METHODS:
                members[item.name] = names if "staticmethod" in decorators else names[1:]
        elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            members[item.target.id] = None
    return members


def stub_surface(source: str) -> Surface:
    surface = Surface()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and is_public(node.name):
            surface.functions[node.name] = stub_parameters(node)
        elif isinstance(node, ast.ClassDef) and is_public(node.name):
            if any(
                ast.unparse(base).split("[")[0] in {"Protocol", "TypedDict"} for base in node.bases
            ):
                continue  # a type for type checkers
            surface.classes[node.name] = stub_members(node)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_alias = ast.unparse(node.annotation).endswith("TypeAlias")
            if is_public(node.target.id) and not is_alias:
                surface.constants.add(node.target.id)
    return surface


# --- the module -----------------------------------------------------------------------------------


def embedded_parameters(doc: str | None, name: str) -> Signature:
    """Return the parameter names of the signature Cython writes into a docstring."""
    lines = (doc or "").lstrip().splitlines()
    match = re.match(rf"(?:\w+\.)*{name}\((?P<inside>.*)\)", lines[0]) if lines else None
    if match is None:
        return None
    depth, parts = 0, [""]
    for letter in match["inside"]:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    names = [re.split("[:=]", part)[0].split()[-1:] for part in parts]
    return [
        words[0].lstrip("*&") for words in names if words and words[0] not in {"*", "/", "self"}
    ]


def runtime_parameters(function: object, name: str) -> Signature:
    try:
        parameters = list(inspect.signature(function).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return embedded_parameters(getattr(function, "__doc__", None), name)
    return [parameter for parameter in parameters if parameter != "self"]


def runtime_members(cls: type) -> dict[str, Signature]:
    members: dict[str, Signature] = {}
    for name, value in vars(cls).items():
        if is_public(name):
            is_call = callable(value) or isinstance(value, classmethod | staticmethod)
            target = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            members[name] = runtime_parameters(target, name) if is_call else None
            if isinstance(value, classmethod) and members[name]:
                members[name] = [item for item in members[name] or [] if item != "cls"]
    return members


def runtime_surface(module: ModuleType) -> Surface:
    surface = Surface()
    for name, value in vars(module).items():
        if not is_public(name) or isinstance(value, ModuleType):
            continue
        if getattr(value, "__module__", module.__name__) != module.__name__:
            continue  # imported
        if isinstance(value, type):
            members = runtime_members(value)
            if members:
                surface.classes[name] = members
        elif callable(value):
            surface.functions[name] = runtime_parameters(value, name)
        elif isinstance(value, int | str | bytes | float | tuple) and name.isupper():
            surface.constants.add(name)
    return surface


# --- the comparison -------------------------------------------------------------------------------


def differences(stub: Surface, module: ModuleType) -> list[str]:
    real = runtime_surface(module)
    found = _compare("function", stub.functions, real.functions)
    for name in stub.classes.keys() | real.classes.keys():
        if name not in stub.classes:
            found.append(f"class {name} is not in the stub")
        elif name not in vars(module):
            found.append(f"class {name} is only in the stub")
        else:
            found += _compare_class(name, stub.classes[name], vars(module)[name])
    found += [f"constant {name} is only in the stub" for name in stub.constants - set(vars(module))]
    found += [f"constant {name} is not in the stub" for name in real.constants - stub.constants]
    return sorted(found)


def _compare_class(name: str, stub: dict[str, Signature], cls: type) -> list[str]:
    found = _compare(
        f"{name}.",
        {member: names for member, names in stub.items() if is_public(member)},
        runtime_members(cls),
    )
    found += [
        f"{name}.{member} is only in the stub"
        for member in stub
        if not is_public(member) and not hasattr(cls, member)
    ]
    embedded = embedded_parameters(cls.__doc__, name)
    if embedded is not None and "__init__" in stub and stub["__init__"] != embedded:
        found.append(f"{name}() takes {embedded}, the stub says {stub['__init__']}")
    if embedded and "__init__" not in stub:
        found.append(f"{name}() takes {embedded}, the stub has no __init__")
    return found


def _compare(kind: str, stub: dict[str, Signature], real: dict[str, Signature]) -> list[str]:
    label = kind if kind.endswith(".") else f"{kind} "
    found = [f"{label}{name} is not in the stub" for name in real.keys() - stub.keys()]
    found += [f"{label}{name} is only in the stub" for name in stub.keys() - real.keys()]
    for name in stub.keys() & real.keys():
        if real[name] is not None and stub[name] != real[name]:
            found.append(f"{label}{name} takes {real[name]}, the stub says {stub[name]}")
    return found


# --- tests ----------------------------------------------------------------------------------------


def test_every_compiled_module_has_a_stub() -> None:
    assert STUBS.keys() >= COMPILED
    assert {name.rpartition(".")[0] for name in STUBS} == {
        "kfast._native",
        "kfast._runtime",
        "kfast.network",
    }


@pytest.mark.parametrize("name", STUBS)
def test_stub_and_module_agree(name: str) -> None:
    module = importlib.import_module(name)
    assert str(module.__file__).endswith(SUFFIXES)
    source = STUBS[name].read_text(encoding="utf-8")
    assert differences(stub_surface(source), module) == []


def fake_module() -> ModuleType:
    module = ModuleType("fake")
    source = (
        "import os\n"
        "from pathlib import Path\n"
        "LIMIT = 5\n"
        "def scan(frame, start, end=0): ...\n"
        "class Reader:\n"
        "    'Reader(OwnedBuffer frame, int start=0, *, bint strict=(1, 2))\\n\\nReads.'\n"
        "    def read(self, n): ...\n"
        "    size = property(lambda self: 1)\n"
        "class Helper: pass\n"
    )
    exec(compile(source, "fake", "exec"), module.__dict__)
    return module


GOOD_STUB = """
from typing import final
LIMIT: int
def scan(frame: bytes, start: int, end: int = 0) -> int: ...
@final
class Reader:
    def __init__(self, frame: bytes, start: int = 0, *, strict: object = ...) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def read(self, n: int) -> bytes: ...
    @property
    def size(self) -> int: ...
"""


def test_the_comparison_is_content_with_a_true_stub() -> None:
    assert differences(stub_surface(GOOD_STUB), fake_module()) == []


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("LIMIT: int\n", "", "constant LIMIT is not in the stub"),
        ("LIMIT: int", "LIMIT: int\nMORE: int", "constant MORE is only in the stub"),
        ("def scan", "def skim", "function scan is not in the stub"),
        ("start: int, end", "begin: int, end", "the stub says ['frame', 'begin', 'end']"),
        ("def read(self, n", "def read(self, m", "Reader.read takes ['n'], the stub says ['m']"),
        ("def size", "def length", "Reader.length is only in the stub"),
        ("def __init__(self, frame: bytes, ", "def __init__(self, ", "Reader() takes ['frame',"),
        ("class Reader", "class Writer", "class Reader is not in the stub"),
    ],
)
def test_the_comparison_sees(old: str, new: str, complaint: str) -> None:
    assert old in GOOD_STUB
    found = differences(stub_surface(GOOD_STUB.replace(old, new)), fake_module())
    assert any(complaint in line for line in found), found
