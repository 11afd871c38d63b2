"""``.proto`` text: what it means, compared with protoc, and what is refused."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kfast.errors import ConfigurationError
from kfast.schemas.descriptors import ProtoPool, ProtoType
from kfast.schemas.proto_builtin import builtin_file
from kfast.schemas.proto_files import MAX_NAME, MAX_NESTING, link
from kfast.schemas.proto_schema import parse_proto, read_descriptor_set
from kfast.schemas.proto_text import MAX_TEXT, parse_file
from tests.reference import protoc
from tests.soaking import examples
from tests.unit.schemas.proto_sources import PROTO2, PROTO3, SOURCES

SYNTAX = 'syntax = "proto3";\n'


def by_protoc(files: dict[str, str], *names: str) -> ProtoPool:
    made = protoc.descriptor_set(files, *names)
    assert made is not None
    return read_descriptor_set(made)


def assert_same(pool: ProtoPool, other: ProtoPool) -> None:
    """Compare what two pools have in their main files; one may know more of imports."""
    roots = pool.files[pool.main]
    assert roots == other.files[other.main]
    for name, message in pool.messages.items():
        if name in other.messages:
            assert repr(message) == repr(other.messages[name])  # a default may be NaN
            assert pool.nested[name] == other.nested[name]
    for name, enum in pool.enums.items():
        assert enum == other.enums.get(name, enum)
    own = tuple(f"{root}." for root in roots)
    for each in other.messages:
        assert each in pool.messages or not (each in roots or each.startswith(own))


@pytest.mark.parametrize("case", SOURCES)
def test_text_is_read_as_protoc_reads_it(case: str) -> None:
    """TC-80."""
    files = SOURCES[case]
    pool = parse_proto(files["main.proto"], files)
    assert_same(pool, by_protoc(files))


def test_google_s_files_are_read_as_protoc_reads_them() -> None:
    """TC-80: descriptor.proto, features of editions, and the files that APIs of Google share."""
    texts = {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for folder in (protoc.own_files(), protoc.common_files())
        for part in ("google/protobuf", "google/api", "google/rpc", "google/type")
        for path in (folder / part).rglob("*.proto")
    }
    assert len(texts) > 60
    theirs = by_protoc(texts, *texts)
    for name, text in texts.items():
        pool = parse_proto(text, texts)
        assert pool.files[pool.main] == theirs.files[name]
        assert all(message == theirs.messages[key] for key, message in pool.messages.items())
        assert all(enum == theirs.enums[key] for key, enum in pool.enums.items())
        assert all(names == theirs.nested[key] for key, names in pool.nested.items())


def test_the_well_known_types_are_known_without_their_files() -> None:
    """TC-87: those of Google as protoc has them."""
    for path in sorted(protoc.own_files().glob("google/protobuf/*.proto")):
        name = f"google/protobuf/{path.name}"
        file = builtin_file(name)
        if file is None:
            assert path.name in {
                "cpp_features.proto", "descriptor.proto", "go_features.proto",
                "java_features.proto",
            }  # fmt: skip
            continue
        pool = link([file], builtin_file)
        theirs = by_protoc({}, name)
        assert (pool.messages, pool.enums) == (theirs.messages, theirs.enums)


def test_comments_strings_and_numbers() -> None:
    """TC-80: what does not need protoc to be seen."""
    pool = parse_proto(PROTO2)
    defaults = {f.name: f.default for f in pool.messages["old.Data"].fields}
    assert defaults["j"] == 'it\'s "two"\nAB\tü'
    assert defaults["k"] == b"\x00\xff\xff\\\x07"
    assert (defaults["a"], defaults["b"], defaults["c"]) == (-(2**63), 2**64 - 1, 15)
    assert (defaults["e"], defaults["h"], defaults["l"]) == (-float("inf"), float("inf"), "SECOND")
    assert defaults["g"] == 0.10000000149011612
    kinds = {
        f.name: (f.type, f.has_presence, f.is_required) for f in pool.messages["old.Data"].fields
    }
    assert kinds["id"] == (ProtoType.INT32, True, True)
    assert kinds["result"] == (ProtoType.GROUP, True, False)
    assert kinds["first"] == (ProtoType.INT32, True, False)
    assert kinds["numbers"] == (ProtoType.INT32, False, False)


def test_an_import_that_is_not_given_is_missed_only_where_a_type_of_it_is_used() -> None:
    """TC-80: many files are imported for their options alone."""
    text = SYNTAX + 'import "buf/validate/validate.proto";\nmessage A { int32 x = 1 [(v) = 3]; }'
    assert parse_proto(text).files[""] == ("A",)
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(text + "message B { a.Money m = 1; }")
    assert str(raised.value) == (
        'the Protobuf schema, line 3, column 49: field m has the unknown type "a.Money"\n'
        "found: imported and not given: buf/validate/validate.proto\n"
        "try: give its text by imports= (--value-imports DIR), or a descriptor set: "
        "protoc --include_imports --descriptor_set_out=FILE"
    )


REFUSED = [
    ('syntax = "proto4";', "syntax 'proto4' is not known", 1, 10),
    ('edition = "2024";', "edition '2024' is not known", 1, 11),
    ("mesage A {}", "no statement begins like this", 1, 1),
    ("message A {", "expected a field, or }", 1, 12),
    ("message A { x = 1; }", "expected the name of the field", 1, 15),
    ("message {}", "expected a name", 1, 9),
    ("message A { int32 x; }", 'expected "="', 1, 20),
    ("message A { int32 x = y; }", "expected the number of the field", 1, 23),
    ("message A { int32 x = 1 }", 'expected ";"', 1, 25),
    ("message A { int32 x = 0; }", "field x of A has the number 0", 1, 13),
    ("message A { int32 x = 536870912; }", "has the number 536870912", 1, 13),
    ("message A { int32 x = 19000; }", "field x of A has the number 19000", 1, 13),
    ("message A { int32 x = 1; int32 y = 1; }", "two fields of A have the number 1", 1, 26),
    ("message A { int32 x = 1; int32 x = 2; }", 'two fields of A have the name "x"', 1, 26),
    ("message A {\n  int32 x = 1;\n  reserved 1;\n}", "the number 1 of x is reserved", 2, 3),
    ("message A { int32 x = 5; reserved 1, 3 to max; }", "of x is reserved", 1, 13),
    ('message A { int32 x = 1; reserved "x"; }', "the name x is reserved", 1, 13),
    ("message A { reserved 5 to 3; }", "the range ends before it begins", 1, 22),
    ("message A { reserved 5, 3 to 6; }", "ranges of reserved numbers overlap", 1, 34),
    ("message A { required int32 x = 1; }", "proto3 has no required fields", 1, 13),
    ("message A { optional group G = 1 {} }", "proto3 has no groups", 1, 13),
    ("message A { int32 x = 1 [default = 3]; }", "proto3 has no defaults", 1, 36),
    ("message A { oneof o {} }", "oneof o of A has no fields", 1, 9),
    ("message A { oneof o { repeated int32 x = 1; } }", "has no label", 1, 23),
    ("message A { oneof o { map<int32, int32> x = 1; } }", "cannot be in a oneof", 1, 23),
    ("message A { repeated map<int32, int32> x = 1; }", "has no label", 1, 13),
    ("message A { map<float, int32> x = 1; }", "keys of a map cannot be float", 1, 17),
    ("message A { map<int32> x = 1; }", 'expected ","', 1, 22),
    ("message A { map<int32, map<int32, int32>> x = 1; }", 'expected ">"', 1, 27),
    ("message A { Nothing x = 1; }", 'field x has the unknown type "Nothing"', 1, 13),
    ("message A { A.B x = 1; }", 'field x has the unknown type "A.B"', 1, 13),
    ("message A {} message A {}", "A is defined twice", 1, 22),
    ("message A {} enum A { X = 0; }", "A is defined twice", 1, 19),
    ("enum E {}", "enum E has no values", 1, 6),
    ("enum E { A = 1; }", "the first value of enum E is not 0", 1, 6),
    ("enum E { A = 0; A = 1; }", "enum E has the value A twice", 1, 6),
    ("enum E { A = 0; B = 0; }", "two values of the enum have the number 0", 1, 17),
    ("enum E { A = 0; B = 2147483648; }", "the number is out of range", 1, 21),
    ("enum E { A = 0; reserved -5 to -1; B = -2; }", "the number -2 of B is reserved", 1, 36),
    ("package a; package b;", "there is a package already", 1, 12),
    ("/* open", "the comment does not end", 1, 1),
    ('import "x', "the string does not end in its line", 1, 8),
    (r'import "\z";', "the string has a wrong escape or character", 1, 8),
    ('import "\ud800";', "the string has a wrong escape or character", 1, 8),
    (r'import "\xff";', "the string is not UTF-8", 1, 8),
    ("message A { int32 x = 1a; }", "this is no number", 1, 23),
    ("message ü {}", "this character cannot be here", 1, 9),
    ("option x = {", "the block does not end", 1, 12),
    ("option x = -{};", "expected the value of the option", 1, 13),
    ("option features.enum_type = OPEN;", "proto3 has no features", 1, 29),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message", "line", "column"), REFUSED)
def test_a_mistake_is_named_with_line_and_column(
    text: str, message: str, line: int, column: int
) -> None:
    """TC-81."""
    if not text.startswith(("syntax", "edition")):
        text, line = SYNTAX + text, line + 1
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(text)
    first = raised.value.message
    assert f"line {line}, column {column}: " in first, first
    assert message in first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("message A { int32 x = 1; }", "a field of proto2 needs a label"),
        ('edition = "2023"; message A { optional int32 x = 1; }', "has features.field_presence"),
        ('edition = "2023"; message A { group G = 1 {} }', "2023 has no groups"),
        ('edition = "2023"; option features.enum_type = SHUT;', "a value that is not known"),
        ('edition = "2023"; message A { option features.enum_type = OPEN; }', "has no feature"),
        ("message A { optional group g = 1 {} }", "begins with a capital letter"),
        ("message A { optional int32 x = 1 [default = -]; }", "expected the value of the option"),
        ("message A { optional int32 x = 1 [default = 1.5]; }", "not of the type of the field"),
        ("message A { optional uint32 x = 1 [default = -1]; }", "not of the type of the field"),
        ("message A { optional int32 x = 1 [default = 2147483648]; }", "not of the type"),
        ("message A { optional bool x = 1 [default = 1]; }", "not of the type of the field"),
        ("message A { optional bytes x = 1 [default = x]; }", "not of the type of the field"),
        (r'message A { optional string x = 1 [default = "\xff"]; }', "not of the type of the"),
        ("message A { optional float x = 1 [default = 08]; }", "not of the type of the field"),
        ("message A { repeated int32 x = 1 [default = 1]; }", "cannot have a default"),
        ("message A { optional A x = 1 [default = a]; }", "cannot have a default"),
        ("message A { optional group G = 1 [default = 5] {} }", "messages have no defaults"),
        ("message A { map<int32, int32> x = 1 [default = 5]; }", "messages have no defaults"),
        ("message A { optional E x = 1 [default = B]; } enum E { C = 1; }", "no value of its enum"),
        ("message A { optional int32 x = 1 [default = 1, default = 1]; }", "this is there twice"),
        ("message A { optional int32 x = 1; extensions 1 to 5; }", "is one of extensions"),
    ],
)  # fmt: skip
def test_what_proto2_and_editions_do_not_have(text: str, message: str) -> None:
    """TC-81."""
    with pytest.raises(ConfigurationError, match=message):
        parse_proto(text)


def test_the_file_of_an_import_is_named() -> None:
    """TC-81: also the one that was forgotten."""
    text = SYNTAX + 'import "b.proto";\nmessage A { c.C x = 1; }'
    b = SYNTAX + 'import "c.proto"; package b;\n message B { c.C x = 1; }'
    with pytest.raises(ConfigurationError, match=r"c\.proto, line 1, column 9: expected a name"):
        parse_proto(text, {"b.proto": b, "c.proto": "message 1"})
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(text, {"b.proto": b, "c.proto": SYNTAX + "package c; message C {}"})
    assert raised.value.found == "c.C is in c.proto, which is not imported here"
    assert raised.value.hint == 'import "c.proto"'


def test_a_type_that_is_misspelt() -> None:
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(SYNTAX + "package p; message Order { Ordre x = 1; }")
    assert raised.value.hint == 'did you mean "p.Order"?'


def test_hostile_texts_are_bounded() -> None:
    """TC-81: size, nesting and names; time is linear in the text."""
    with pytest.raises(ConfigurationError, match=f"more than {MAX_TEXT} characters"):
        parse_proto(" " * (MAX_TEXT + 1))
    deep = MAX_NESTING
    assert len(parse_proto(SYNTAX + "message A { " * deep + "} " * deep).messages) == deep
    deep += 1
    with pytest.raises(ConfigurationError, match=f"nested more than {MAX_NESTING} levels"):
        parse_proto(SYNTAX + "message A { " * deep + "} " * deep)
    with pytest.raises(ConfigurationError, match=f"nested more than {MAX_NESTING} levels"):
        parse_proto("message A { " + "optional group G = 1 { " * deep + "} " * deep + "}")
    with pytest.raises(ConfigurationError, match="the name of a type is none"):
        parse_proto(SYNTAX + f"message {'A' * (MAX_NAME + 1)} {{}}")
    with pytest.raises(ConfigurationError, match="does not end"):
        parse_file("option x = " + "{" * 200_000)
    with pytest.raises(ConfigurationError, match="expected"):
        parse_file("option x = " + "[" * 200_000)
    with pytest.raises(ConfigurationError, match="expected the number of the field"):
        parse_proto(SYNTAX + "message A { int32 x = " + "9" * 200_000 + "; }")
    begin = time.process_time()
    parse_file('option x = "' + "\\\\" * 300_000 + '";' + "/" * 300_000)
    assert time.process_time() - begin < 5


ALL_WORDS = """message enum oneof map reserved extensions extend option import package syntax group
    optional repeated required int32 string A B E x y z to max default features 1 2 0 -1 19000 0x5
    1.5 "proto3" 'x' "a.proto" { } [ ] ( ) < > = ; , . - : // /* */"""
TOKENS = st.sampled_from(ALL_WORDS.split())


@given(st.lists(TOKENS, max_size=40).map(" ".join))
@settings(max_examples=150, deadline=None)
def test_any_words_are_a_schema_or_an_error(text: str) -> None:
    """TC-81."""
    for begin in ("", SYNTAX, 'edition = "2023"; '):
        with suppress(ConfigurationError):
            assert isinstance(parse_proto(begin + "message A { " + text), ProtoPool)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_damaged_schema_is_a_schema_or_an_error(data: st.DataObject) -> None:
    """TC-81."""
    text = data.draw(st.sampled_from([PROTO3, PROTO2, *SOURCES["scopes"].values()]))
    begin = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(begin, min(begin + 20, len(text))))
    text = text[:begin] + data.draw(st.text(max_size=5) | TOKENS) + text[end:]
    with suppress(ConfigurationError):
        assert isinstance(parse_proto(text, SOURCES["scopes"]), ProtoPool)


WORDS = re.compile(r'\w+|"[^"\n]*"|[^\s\w]')
MORE_WORDS = "- inf 0x10 010 1.5 public weak default true repeated optional required oneof"


@given(st.integers(0))
@examples(200)
def test_what_protoc_accepts_is_read_alike(seed: int) -> None:
    """TC-80: words taken out, put in or copied."""
    rng = Random(seed)
    files = dict(SOURCES[rng.choice(sorted(SOURCES))])
    text = files["main.proto"]
    words = [match.span() for match in WORDS.finditer(text)]
    for _ in range(rng.choice([1, 1, 2]) if words else 0):
        begin, end = rng.choice(words)
        copied = slice(*rng.choice(words))
        word = rng.choice(["", text[copied], rng.choice(MORE_WORDS.split())])
        text = text[:begin] + f"{word} " + text[rng.choice([begin, end]) :]
    files["main.proto"] = text
    compiled = protoc.descriptor_set(files)
    if compiled is None:
        with suppress(ConfigurationError):  # it need not know everything that is wrong
            parse_proto(text, files)
    else:
        assert_same(parse_proto(text, files), read_descriptor_set(compiled))
