"""Random Avro schemas, random changes of them, and random values in them, from one ``Random``.

Schemas are JSON as fastavro and the avro package take it. All named types of a schema have names of
their own, so that parts can be moved. Hypothesis draws the seed only: drawing each part takes a
hundred times as long.
"""

from __future__ import annotations

import copy
from random import Random
from typing import Any
from uuid import UUID

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL: tuple[Any, ...] = (
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-millis"},
    {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3},
    {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 7},
    {"type": "string", "logicalType": "uuid"},
)
SYMBOLS = ("a", "b", "c", "d")
PROMOTED = {
    "int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
    "string": ("bytes",), "bytes": ("string",),
}  # fmt: skip


class Schemas:
    """Makes schemas; ``leaves`` are what they have without parts, besides enums and fixed.

    With ``are_columns`` all of a schema can be columns: unions are of null and one type.
    """

    def __init__(
        self, rng: Random, leaves: tuple[Any, ...] = PRIMITIVES, *, are_columns: bool = False
    ) -> None:
        self._are_columns = are_columns
        self._rng = rng
        self._leaves = tuple(t for t in leaves if t != "null" or not are_columns)
        self._count = 0

    def name(self) -> str:
        self._count += 1
        return f"T{self._count}"

    def one_of(self, numerator: int, denominator: int) -> bool:
        return self._rng.randrange(denominator) < numerator

    def type(self, depth: int) -> Any:
        kinds = ["leaf", "leaf", "leaf", "enum", "fixed"]
        if depth > 0:
            kinds += ["record", "record", "array", "map", "union", "union"]
        kind = self._rng.choice(kinds)
        if kind == "enum":
            symbols = self._rng.sample(SYMBOLS, self._rng.randint(1, 4))
            return {"type": "enum", "name": self.name(), "symbols": symbols}
        if kind == "fixed":
            return {"type": "fixed", "name": self.name(), "size": self._rng.randint(1, 4)}
        if kind == "array":
            return {"type": "array", "items": self.type(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": self.type(depth - 1)}
        if kind == "union":
            return self.union(depth)
        if kind == "record":
            return self.record(depth)
        return copy.deepcopy(self._rng.choice(self._leaves))

    def record(self, depth: int = 3) -> dict[str, Any]:
        name = self.name()
        fields = [
            {"name": f"f{at}", "type": self.type(depth - 1)}
            for at in range(self._rng.randint(1, 4))
        ]
        return {"type": "record", "name": name, "fields": fields}

    def union(self, depth: int) -> list[Any]:
        if self._are_columns:
            value = self.type(depth - 1)
            while isinstance(value, list):
                value = self.type(depth - 1)
            branches = ["null", value]
            self._rng.shuffle(branches)
            return branches
        return union_of([self.type(depth - 1) for _ in range(self._rng.randint(1, 3))])

    def evolved(self, schema: Any, *, is_root: bool = False) -> Any:
        """A reader of a writer's schema: mostly the same, here and there changed."""
        change = self._rng.randrange(20)
        if change == 0 and not is_root:
            return self.type(1)
        if isinstance(schema, list):
            return self._evolved_union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if change in {1, 2} and not is_root:
            return union_of(["null", self.evolved(schema)])
        if kind in PROMOTED and change in {3, 4, 5}:
            return self._rng.choice(PROMOTED[kind])
        if isinstance(schema, str) or "logicalType" in schema:
            return schema
        made = dict(schema)
        if "name" in made and not is_root and change in {6, 7}:
            made["name"] = self.name()
            if change == 6:
                made["aliases"] = [schema["name"]]
        if kind == "array":
            made["items"] = self.evolved(schema["items"])
        elif kind == "map":
            made["values"] = self.evolved(schema["values"])
        elif kind == "fixed":
            made["size"] = schema["size"] + (change == 8)
        elif kind == "enum" and change in {8, 9, 10}:
            made["symbols"] = self._rng.sample(SYMBOLS, self._rng.randint(1, 4))
            if change == 9:
                made["default"] = made["symbols"][-1]
        elif kind == "record":
            made["fields"] = self._evolved_fields(schema["fields"])
        return made

    def _evolved_union(self, schema: list[Any]) -> Any:
        change = self._rng.randrange(6)
        branches = [self.evolved(branch) for branch in schema]
        if change == 0:
            return self._rng.choice(branches)
        if change == 1 and len(branches) > 1:
            branches.pop(self._rng.randrange(len(branches)))
        if change == 2:
            self._rng.shuffle(branches)
        return union_of(branches)

    def _evolved_fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        made = []
        for at, field in enumerate(fields):
            change = self._rng.randrange(10)
            new = {"name": field["name"], "type": self.evolved(field["type"])}
            if change == 0:
                new = {"name": f"renamed{at}", "type": new["type"]}
                new["aliases"] = ["none", field["name"]]
            if change != 1 or len(fields) == 1:
                made.append(new)
        if self.one_of(1, 3):
            added = {"name": "added", "type": self.type(1)}
            if self.one_of(2, 3):
                added["default"] = default_of(added["type"])
            made.insert(self._rng.randint(0, len(made)), added)
        if self.one_of(1, 2):
            self._rng.shuffle(made)
        return made


def union_of(branches: list[Any]) -> list[Any]:
    """A union of the branches, without those that may not be in it together."""
    flat: list[Any] = []
    for branch in branches:
        flat += branch if isinstance(branch, list) else [branch]
    return list({_branch_key(branch): branch for branch in flat}.values())


def _branch_key(branch: Any) -> str:
    return branch if isinstance(branch, str) else str(branch.get("name", branch["type"]))


def default_of(schema: Any) -> Any:
    """A default that every implementation takes for the type."""
    if isinstance(schema, list):
        return default_of(schema[0])
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {field["name"]: default_of(field["type"]) for field in schema["fields"]}
    if kind == "enum":
        return schema["symbols"][0]
    if kind == "fixed":
        return "x" * schema["size"]
    if not isinstance(schema, str) and schema.get("logicalType") == "uuid":
        return "00000000-0000-0000-0000-000000000007"
    return {
        "null": None, "boolean": True, "int": 7, "long": 9, "float": 0.5, "double": 1.25,
        "bytes": "\u00ff\u0001", "string": "déf", "array": [], "map": {},
    }[kind]  # fmt: skip


# ------------------------------------------------------------------------------------------- values


def value_of(schema: Any, rng: Random) -> Any:
    """A random value, as ``tests.reference.avro_encoder`` takes it."""
    if isinstance(schema, list):
        branch = rng.randrange(len(schema))
        return branch, value_of(schema[branch], rng)
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
    if kind == "record":
        return {field["name"]: value_of(field["type"], rng) for field in schema["fields"]}
    if kind == "array":
        return [value_of(schema["items"], rng) for _ in range(rng.choice((0, 1, 3)))]
    if kind == "map":
        return {_text(rng): value_of(schema["values"], rng) for _ in range(rng.choice((0, 1, 3)))}
    if kind == "enum":
        return rng.choice(schema["symbols"])
    if kind == "fixed":
        return rng.randbytes(schema["size"])
    if logical.startswith("time-"):
        return rng.randrange(86_400_000 if kind == "int" else 86_400_000_000)
    if logical == "uuid":
        return str(UUID(int=rng.getrandbits(128)))
    if logical == "decimal":
        unscaled = rng.randint(-(10 ** rng.randint(0, 9)), 10 ** rng.randint(0, 9)) % 10**9
        return (-unscaled).to_bytes(rng.choice((4, 5, 16, 40)), "big", signed=True)
    if kind == "boolean":
        return rng.random() < 0.5
    if kind in {"int", "long"}:
        bits = rng.randint(1, 31 if kind == "int" else 63)
        return rng.choice((-1, 1)) * rng.getrandbits(bits) - rng.randrange(2)
    if kind in {"float", "double"}:
        return rng.choice((0.0, -0.5, 1.5, float("inf"), rng.randint(-99, 99) / 8))
    if kind == "bytes":
        # Text mostly, as a reader may want it.
        return _text(rng).encode() if rng.random() < 0.8 else rng.randbytes(5)
    return None if kind == "null" else _text(rng)


def _text(rng: Random) -> str:
    letters = rng.choice(("abcdefgh", "abcdefgh", "aé€😀"))
    return "".join(rng.choices(letters, k=rng.choice((0, 1, 3, 15, 16, 17, 40))))
