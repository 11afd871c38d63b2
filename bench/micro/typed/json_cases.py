"""JSON: flat, nested, wide and shuffled documents, next to readers of NDJSON and parsers."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import orjson
import polars as pl
import pyarrow as pa
import pyarrow.json as pa_json

import kfast
from bench.data import json_values
from bench.micro.typed.cases import MOST_MEMORY, Case
from kfast.columns.bytes import BytesColumn
from kfast.demo.data import TRADE_COLUMNS, trades

FLAT_ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.int64()),
        ("user", pa.string()),
        ("price", pa.float64()),
        ("qty", pa.int32()),
        ("side", pa.string()),
    ]
)
FLAT_DUCKDB = {
    "id": "BIGINT",
    "ts": "BIGINT",
    "user": "VARCHAR",
    "price": "DOUBLE",
    "qty": "INTEGER",
    "side": "VARCHAR",
}
FLAT_POLARS = {
    "id": pl.Int64,
    "ts": pl.Int64,
    "user": pl.String,
    "price": pl.Float64,
    "qty": pl.Int32,
    "side": pl.String,
}
NESTED = {
    "order": {
        "id": "int64",
        "customer": "string",
        "city": "string",
        "total": "float64",
        "paid": "bool",
    },
    "lines": [{"sku": "string", "qty": "int32", "price": "float64"}],
    "note": "string",
    "comment": "string",
    "channel": "string",
}
NESTED_DUCKDB = {
    "order": "STRUCT(id BIGINT, customer VARCHAR, city VARCHAR, total DOUBLE, paid BOOLEAN)",
    "lines": "STRUCT(sku VARCHAR, qty INTEGER, price DOUBLE)[]",
    "note": "VARCHAR",
    "comment": "VARCHAR",
    "channel": "VARCHAR",
}
CITIES = ("Zürich", "São Paulo", "Köln", "Berlin", "Oslo")


class Trade(msgspec.Struct):
    """A flat document, as msgspec reads it."""

    id: int
    ts: int
    user: str
    price: float
    qty: int
    side: str


def nested_rows(count: int, generator: random.Random) -> Iterator[dict[str, Any]]:
    """Yield documents with an object of 5, an array of 2 to 4 objects of 3, nulls, escapes."""
    for _ in range(count):
        yield {
            "order": {
                "id": generator.randrange(10**9),
                "customer": f"customer-{generator.randrange(10**6):07}",
                "city": generator.choice(CITIES),
                "total": round(generator.uniform(1, 5000), 2),
                "paid": generator.random() < 0.5,
            },
            "lines": [
                {
                    "sku": f"SKU-{generator.randrange(10**6):06}",
                    "qty": generator.randrange(1, 100),
                    "price": round(generator.uniform(1, 500), 2),
                }
                for _ in range(generator.randrange(2, 5))
            ],
            "note": None if generator.random() < 0.3 else 'said "leave\\it" at the door\n2nd floor',
            "comment": None if generator.random() < 0.5 else "größer als nötig, bitte prüfen §4",
            "channel": generator.choice(("web", "store", "phone")),
        }


def own(column: BytesColumn, reader: kfast.Json, stop: bool = True) -> Callable[[], object]:
    """Return kfast's contestant."""

    def decode() -> object:
        values: Any = reader.deserialize_column(column, None, stop_at_first=stop).values
        return values.__arrow_c_array__()

    return decode


def duckdb_file(path: str, columns: dict[str, str]) -> Callable[[], object]:
    """Return duckdb's reader of a file that is in memory."""
    connection = duckdb.connect(config={"threads": 1})
    query = f"SELECT * FROM read_ndjson('{path}', columns={columns})"
    return lambda: connection.sql(query).to_arrow_table()


def duckdb_rows(values: list[bytes], expression: str) -> Callable[[], object]:
    """Return duckdb's reader of a column of texts."""
    connection = duckdb.connect(config={"threads": 1})
    texts = pa.table({"v": pa.array([each.decode("utf-8", "replace") for each in values])})
    connection.register("texts", texts)
    query = f"SELECT {expression} AS made FROM texts"
    return lambda: connection.sql(query).to_arrow_table()


def cases(records: int, folder: Path) -> Iterator[Case]:
    """Yield the cases; ``records`` is the number of flat documents."""
    pa.set_cpu_count(1)
    generator = random.Random(17)
    flat = json_values(trades(records, generator))
    joined = b"\n".join(flat)
    path = folder / "flat.ndjson"
    path.write_bytes(joined)
    column = BytesColumn.from_values(flat)
    size = round(sum(map(len, flat)) / len(flat))
    few = flat[: records // 4]
    decoder = msgspec.json.Decoder(Trade)
    names = list(TRADE_COLUMNS)
    options = pa_json.ReadOptions(use_threads=False)
    parse = pa_json.ParseOptions(explicit_schema=FLAT_ARROW, unexpected_field_behavior="ignore")
    yield Case(
        "JSON flat",
        records,
        size,
        {
            "kfast": own(column, kfast.Json(TRADE_COLUMNS)),
            "duckdb read_ndjson": duckdb_file(str(path), FLAT_DUCKDB),
            "polars read_ndjson": lambda: pl.read_ndjson(io.BytesIO(joined), schema=FLAT_POLARS),
            "pyarrow read_json": lambda: pa_json.read_json(io.BytesIO(joined), options, parse),
        },
        bars={
            "duckdb read_ndjson": 0.50,
            "polars read_ndjson": 0.42,
            "pyarrow read_json": 0.25,
        },
        most_memory=MOST_MEMORY,
    )
    yield Case(
        "JSON flat, object per record",
        len(few),
        size,
        {
            "kfast": own(BytesColumn.from_values(few), kfast.Json(TRADE_COLUMNS)),
            "orjson": lambda: pa.Table.from_pylist(list(map(orjson.loads, few)), FLAT_ARROW),
            "msgspec": lambda: pa.Table.from_arrays(
                [
                    pa.array([getattr(each, name) for each in made], FLAT_ARROW.field(name).type)
                    for name in names
                    for made in [_structs(decoder, few)]
                ],
                schema=FLAT_ARROW,
            ),
        },
        factors={"orjson": 15.0},
    )
    shuffled = []
    for text in flat[: records // 4]:
        members = list(json.loads(text).items())
        generator.shuffle(members)
        shuffled.append(orjson.dumps(dict(members)))
    yield _file_case("JSON keys shuffled", shuffled, TRADE_COLUMNS, FLAT_DUCKDB, 0.65, folder)
    nested = json_values(nested_rows(records // 4, generator))
    yield _file_case("JSON nested", nested, NESTED, NESTED_DUCKDB, 0.45, folder)
    wide = []
    for text in flat[: records // 4]:
        members = list(json.loads(text).items())
        rest: list[tuple[str, Any]] = [
            (f"attribute_{i:02}", f"some text that is not read {i}") for i in range(7)
        ]
        rest += [(f"number_{i}", i * 1000.5) for i in range(4)]
        order = [pair for pairs in zip(members, rest, strict=False) for pair in pairs]
        wide.append(orjson.dumps(dict(order + rest[len(members) :])))
    yield _file_case("JSON wide, 6 of 17 keys", wide, TRADE_COLUMNS, FLAT_DUCKDB, 0.65, folder)
    yield _bad_rows(flat[: records // 4], generator)
    yield _two_threads([flat[: records // 2], flat[records // 2 :]])


def _structs(decoder: Any, values: list[bytes]) -> list[Trade]:
    return [decoder.decode(each) for each in values]


def _file_case(
    name: str,
    values: list[bytes],
    schema: dict[str, Any],
    columns: dict[str, str],
    bar: float,
    folder: Path,
) -> Case:
    path = folder / f"{name.split()[1].strip(',')}.ndjson"
    path.write_bytes(b"\n".join(values))
    return Case(
        name,
        len(values),
        round(sum(map(len, values)) / len(values)),
        {
            "kfast": own(BytesColumn.from_values(values), kfast.Json(schema)),
            "duckdb read_ndjson": duckdb_file(str(path), columns),
        },
        bars={"duckdb read_ndjson": bar},
        most_memory=MOST_MEMORY,
    )


def _bad_rows(values: list[bytes], generator: random.Random) -> Case:
    damaged = list(values)
    for row in generator.sample(range(len(values)), len(values) // 100):
        text = damaged[row]
        damaged[row] = generator.choice(
            (text[:-20], text.replace(b'"qty":', b'"qty":"x",'), text.replace(b",", b";", 1))
        )
    structure = json.dumps(FLAT_DUCKDB)
    reader = kfast.Json(TRADE_COLUMNS)
    return Case(
        "JSON flat, 1 % bad rows",
        len(values),
        round(sum(map(len, values)) / len(values)),
        {
            "kfast": own(BytesColumn.from_values(damaged), reader, stop=False),
            "kfast, no bad rows": own(BytesColumn.from_values(values), reader, stop=False),
            "duckdb from_json": duckdb_rows(
                damaged, f"from_json(TRY_CAST(v AS JSON), '{structure}')"
            ),
            "duckdb from_json_strict": duckdb_rows(
                damaged, f"TRY(from_json_strict(v, '{structure}'))"
            ),
        },
        bars={
            "kfast, no bad rows": 1.1,
            "duckdb from_json": 0.45,
            "duckdb from_json_strict": 0.06,
        },
    )


def _two_threads(slices: list[list[bytes]]) -> Case:
    reader = kfast.Json(TRADE_COLUMNS)
    decoders = [own(BytesColumn.from_values(values), reader) for values in slices]
    pool = ThreadPoolExecutor(len(slices))
    return Case(
        "JSON flat, two slices on two threads",
        sum(map(len, slices)),
        round(sum(map(len, slices[0])) / len(slices[0])),
        {
            "kfast": lambda: list(pool.map(lambda decode: decode(), decoders)),
            "kfast, on one thread": lambda: [decode() for decode in decoders],
        },
        bars={"kfast, on one thread": round(1 / 1.7, 3)},
        cores=2,
    )


def in_memory_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a folder for files that are in memory, where the system has one."""
    shared = Path("/dev/shm")
    return tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None)
