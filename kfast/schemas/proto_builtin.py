"""Files of Protobuf that every installation has: schemas import them without giving them.

These are the well-known types, ``google.type`` and Confluent's decimal, which registries know
without references. Here is what decoding needs of them, without options and services. A file that
is given under one of these names is taken instead.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from kfast.schemas.proto_files import FileDefinition
from kfast.schemas.proto_text import parse_file


def builtin_file(name: str) -> FileDefinition | None:
    """Return a file by the name under which it is imported, None for others."""
    return _parsed(name) if name in _BODIES else None


@cache
def _parsed(name: str) -> FileDefinition:
    folder = name.rpartition("/")[0]
    imports = "".join(f'import "{import_name}";' for import_name in _IMPORTS.get(name, ()))
    package = folder.replace("/", ".")
    text = f'syntax = "proto3"; package {package}; {imports} {_BODIES[name]}'
    return parse_file(text, name)


def _message(name: str, *members: str) -> str:
    """Return a message whose fields are numbered from 1: a type, and the names that have it."""
    fields = []
    for member in members:
        kind, *names = member.split()
        fields += [f"{kind.replace('*', 'repeated ')} {field_name}" for field_name in names]
    numbered = (f"{field} = {number};" for number, field in enumerate(fields, 1))
    return f"message {name} {{ {' '.join(numbered)} }}\n"


def _enum(name: str, names: str) -> str:
    """Return an enum whose values are numbered from 0."""
    numbered = (f"{value} = {number};" for number, value in enumerate(names.split()))
    return f"enum {name} {{ {' '.join(numbered)} }}\n"


_ANY: Final = "google/protobuf/any.proto"
_DURATION: Final = "google/protobuf/duration.proto"
_SOURCE: Final = "google/protobuf/source_context.proto"
_TIMESTAMP: Final = "google/protobuf/timestamp.proto"
_TYPE: Final = "google/protobuf/type.proto"
_WRAPPERS: Final = "google/protobuf/wrappers.proto"

_IMPORTS: Final = {
    "google/protobuf/api.proto": (_SOURCE, _TYPE),
    _TYPE: (_ANY, _SOURCE),
    "google/type/color.proto": (_WRAPPERS,),
    "google/type/datetime.proto": (_DURATION,),
    "google/type/interval.proto": (_TIMESTAMP,),
}
_BODIES: Final = {
    _ANY: _message("Any", "string type_url", "bytes value"),
    "google/protobuf/api.proto": _message(
        "Api", "string name", "*Method methods", "*Option options", "string version",
        "SourceContext source_context", "*Mixin mixins", "Syntax syntax", "string edition",
    )
    + _message(
        "Method", "string name request_type_url", "bool request_streaming",
        "string response_type_url", "bool response_streaming", "*Option options", "Syntax syntax",
        "string edition",
    )
    + _message("Mixin", "string name root"),
    _DURATION: _message("Duration", "int64 seconds", "int32 nanos"),
    "google/protobuf/empty.proto": _message("Empty"),
    "google/protobuf/field_mask.proto": _message("FieldMask", "*string paths"),
    _SOURCE: _message("SourceContext", "string file_name"),
    "google/protobuf/struct.proto": """
        message Struct { map<string, Value> fields = 1; }
        message Value {
            oneof kind {
                NullValue null_value = 1; double number_value = 2; string string_value = 3;
                bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6;
            }
        }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
    _TIMESTAMP: _message("Timestamp", "int64 seconds", "int32 nanos"),
    _TYPE: _message(
        "Type", "string name", "*Field fields", "*string oneofs", "*Option options",
        "SourceContext source_context", "Syntax syntax", "string edition",
    )
    + "message Field {"
    + _enum(
        "Kind",
        "TYPE_UNKNOWN TYPE_DOUBLE TYPE_FLOAT TYPE_INT64 TYPE_UINT64 TYPE_INT32 TYPE_FIXED64 "
        "TYPE_FIXED32 TYPE_BOOL TYPE_STRING TYPE_GROUP TYPE_MESSAGE TYPE_BYTES TYPE_UINT32 "
        "TYPE_ENUM TYPE_SFIXED32 TYPE_SFIXED64 TYPE_SINT32 TYPE_SINT64",
    )
    + _enum(
        "Cardinality",
        "CARDINALITY_UNKNOWN CARDINALITY_OPTIONAL CARDINALITY_REQUIRED CARDINALITY_REPEATED",
    )
    + """
        Kind kind = 1; Cardinality cardinality = 2; int32 number = 3; string name = 4;
        string type_url = 6; int32 oneof_index = 7; bool packed = 8;
        repeated Option options = 9; string json_name = 10; string default_value = 11;
    }"""
    + _message(
        "Enum", "string name", "*EnumValue enumvalue", "*Option options",
        "SourceContext source_context", "Syntax syntax", "string edition",
    )
    + _message("EnumValue", "string name", "int32 number", "*Option options")
    + _message("Option", "string name", "Any value")
    + _enum("Syntax", "SYNTAX_PROTO2 SYNTAX_PROTO3 SYNTAX_EDITIONS"),
    _WRAPPERS: "".join(
        _message(f"{name}Value", f"{name.lower()} value")
        for name in (
            "Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes",
        )
    ),
    "google/type/calendar_period.proto": _enum(
        "CalendarPeriod",
        "CALENDAR_PERIOD_UNSPECIFIED DAY WEEK FORTNIGHT MONTH QUARTER HALF YEAR",
    ),
    "google/type/color.proto": _message(
        "Color", "float red green blue", "google.protobuf.FloatValue alpha"
    ),
    "google/type/date.proto": _message("Date", "int32 year month day"),
    "google/type/datetime.proto": """
        message DateTime {
            int32 year = 1; int32 month = 2; int32 day = 3; int32 hours = 4; int32 minutes = 5;
            int32 seconds = 6; int32 nanos = 7;
            oneof time_offset {
                google.protobuf.Duration utc_offset = 8; TimeZone time_zone = 9;
            }
        }"""
    + _message("TimeZone", "string id version"),
    "google/type/dayofweek.proto": _enum(
        "DayOfWeek",
        "DAY_OF_WEEK_UNSPECIFIED MONDAY TUESDAY WEDNESDAY THURSDAY FRIDAY SATURDAY SUNDAY",
    ),
    "google/type/decimal.proto": _message("Decimal", "string value"),
    "google/type/expr.proto": _message("Expr", "string expression title description location"),
    "google/type/fraction.proto": _message("Fraction", "int64 numerator denominator"),
    "google/type/interval.proto": _message(
        "Interval", "google.protobuf.Timestamp start_time end_time"
    ),
    "google/type/latlng.proto": _message("LatLng", "double latitude longitude"),
    "google/type/money.proto": _message(
        "Money", "string currency_code", "int64 units", "int32 nanos"
    ),
    "google/type/month.proto": _enum(
        "Month",
        "MONTH_UNSPECIFIED JANUARY FEBRUARY MARCH APRIL MAY JUNE JULY AUGUST SEPTEMBER OCTOBER "
        "NOVEMBER DECEMBER",
    ),
    "google/type/phone_number.proto": """
        message PhoneNumber {
            message ShortCode { string region_code = 1; string number = 2; }
            oneof kind { string e164_number = 1; ShortCode short_code = 2; }
            string extension = 3;
        }""",
    "google/type/postal_address.proto": _message(
        "PostalAddress", "int32 revision",
        "string region_code language_code postal_code sorting_code administrative_area locality",
        "string sublocality", "*string address_lines recipients", "string organization",
    ),
    "google/type/quaternion.proto": _message("Quaternion", "double x y z w"),
    "google/type/timeofday.proto": _message("TimeOfDay", "int32 hours minutes seconds nanos"),
    "confluent/type/decimal.proto": _message("Decimal", "bytes value", "int32 precision scale"),
}  # fmt: skip
