"""``.proto`` files for tests: each is what protoc takes, with what it imports."""

from __future__ import annotations

from typing import Final

PROTO3: Final = """
// A comment before the syntax.
syntax = "proto3";
/* One
   of several lines. */
package shop.v1;

import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/any.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/descriptor.proto";

option java_package = "com.example" ".shop";
option optimize_for = SPEED;
option (shop.v1.owner) = "team";

extend google.protobuf.FileOptions { string owner = 50001; }
extend google.protobuf.FieldOptions { Rule rule = 50002; }

message Rule { int32 max = 1; repeated string names = 2; Rule inner = 3; }

enum Side {
  option allow_alias = true;
  SIDE_UNSPECIFIED = 0;
  BUY = 1 [deprecated = true];
  SELL = 0x2;
  PURCHASE = 1;
  LOSS = -1;
  reserved 5, 7 to 9, 100 to max;
  reserved "OLD";
}

message Order {
  reserved 40, 45 to 47;
  reserved "gone", 'away';
  int64 id = 1;
  double price = 2 [(rule) = { max: 5, names: ["a", "}"], inner { max: -1 } }];
  float ratio = 3;
  uint64 count = 4;
  int32 qty = 5 [deprecated = true, json_name = "Q"];
  fixed64 f64 = 6;
  fixed32 f32 = 7;
  bool ok = 8;
  string name = 9;
  bytes blob = 10;
  uint32 u32 = 11;
  sfixed32 sf32 = 12;
  sfixed64 sf64 = 13;
  sint32 s32 = 14;
  sint64 s64 = 15;
  Side side = 16;
  optional int32 maybe = 17;
  repeated Line lines = 18;
  map<string, Line> by_name = 19;
  map<int32, Side> sides_by_number = 20;
  map<bool, .google.protobuf.Timestamp> x__y_ = 21;
  oneof kind {
    string text = 22;
    Line line = 23;
    .google.protobuf.Empty nothing = 24;
  }
  google.protobuf.Timestamp at = 25;
  google.protobuf.Duration took = 26;
  google.protobuf.Int64Value wrapped = 27;
  google.protobuf.Struct free = 28;
  google.protobuf.Value value = 29;
  google.protobuf.ListValue list = 30;
  google.protobuf.Any any = 31;
  Order parent = 32;
  repeated int32 packed = 33;
  repeated int32 expanded = 34 [packed = false];
  repeated .google.protobuf.StringValue names = 35;
  optional Side maybe_side = 36;
  Nested.Deeper deeper = 536870911;
  ;
  message Nested {
    message Deeper { int32 x = 1; Nested.Deeper again = 2; Line line = 3; }
    enum Colour { NONE = 0; RED = 1; }
    Colour colour = 1;
  }
  message Line {
    string sku = 1; int32 qty = 2; Nested.Colour colour = 3;
  }
}

service Orders {
  option deprecated = true;
  rpc Get(Order) returns (stream Order) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc Put(stream Order) returns (Order);
}
"""

PROTO2: Final = r"""
syntax = 'proto2';
package old;
message Data {
  required int32 id = 1;
  optional int64 a = 2 [default = -9223372036854775808];
  optional uint64 b = 3 [default = 0xFFFFFFFFFFFFFFFF];
  optional int32 c = 4 [default = 017];
  optional double d = 5 [default = 1.5e3];
  optional double e = 6 [default = -inf];
  optional float f = 7 [default = nan];
  optional float g = 8 [default = 0.1];
  optional float h = 9 [default = 1e39];
  optional bool i = 10 [default = true];
  optional string j = 11 [default = 'it\'s ' "\"two\"\n\x41\102\t" 'ü'];
  optional bytes k = 12 [default = "\000\xff\377\\\a"];
  optional Mode l = 13 [default = SECOND];
  optional double m = 14 [default = 3];
  optional double n = 15 [default = .5];
  optional double z = 16 [default = -1.];
  repeated int32 numbers = 20 [packed = true];
  repeated sint64 plain = 21;
  optional group Result = 22 {
    required string url = 1;
    repeated group Part = 2 { optional int32 n = 1; }
    extensions 100 to 199;
  }
  oneof choice {
    int32 first = 30;
    string second = 31;
    group Third = 32 { optional int32 x = 1; }
  }
  map<string, Result> results = 40;
  map<uint64, Zero> modes = 41;
  enum Zero { ZERO = 0; LESS = -1; }
  enum Mode { FIRST = 1; SECOND = 2; THIRD = -3; }
  extensions 1000, 2000 to max [verification = UNVERIFIED];
  reserved 500 to 600;
  optional Data self = 50;
  optional string syntax = 51;
  optional string package = 52;
  optional string import = 53;
  optional int32 to = 54;
  optional int32 max = 55;
  optional int32 map = 56;
  optional int32 inf = 57;
}
extend Data {
  optional string extra = 1000;
  repeated group Ext = 2000 { optional int32 v = 1; }
}
message Holder {
  extend Data { optional group Inner = 2001 { optional int32 w = 1; } }
  message MessageSet {
    option message_set_wire_format = true;
    extensions 4 to max;
  }
  optional int32 last = 1;
}
"""

NO_SYNTAX: Final = "message A { optional int32 x = 1; } enum E { ONE = 1; }"

EDITION: Final = """
edition = "2023";
package ed;
option features.field_presence = IMPLICIT;
option features.enum_type = CLOSED;
message A {
  int32 implicit = 1;
  int32 explicit = 2 [features.field_presence = EXPLICIT, default = 5];
  int32 needed = 3 [features.field_presence = LEGACY_REQUIRED];
  repeated int32 numbers = 4 [features.repeated_field_encoding = EXPANDED];
  B b = 5;
  B delimited = 6 [features.message_encoding = DELIMITED];
  Open open = 7;
  Closed closed = 8 [features = { field_presence: EXPLICIT }];
  map<string, B> map = 9;
  oneof which {
    int32 one = 10;
    string two = 11 [features.utf8_validation = NONE];
    B three = 12 [features.message_encoding = DELIMITED];
  }
  reserved gone, away;
  reserved 100 to max;
}
message B { int32 n = 6; }
enum Open { option features.enum_type = OPEN; ZERO = 0; TWO = 2; }
enum Closed { FIVE = 5; SIX = 6; reserved SEVEN; }
"""

DELIMITED: Final = """
edition = "2023";
option features.message_encoding = DELIMITED;
option features.enum_type = OPEN;
message A {
  A inner = 1;
  map<int32, A> by_number = 2;
  repeated A list = 3;
  oneof x { A prefixed = 4 [features.message_encoding = LENGTH_PREFIXED]; A other = 5; }
}
"""

SCOPES: Final = """
syntax = "proto3";
package a.b;
import "base.proto";
import "outer.proto";
message M {
  M own = 1;
  Inner inner = 2;
  .a.b.M full = 3;
  b.M partial = 4;
  a.b.M complete = 5;
  Base base = 6;
  Leaf leaf = 7;
  c.Deep deep = 8;
  Shadow shadow = 9;
  .Shadow other = 10;
  message Inner {
    Inner self = 1;
    M up = 2;
    message M { int32 x = 1; }
    Shadow shadow = 3;
  }
  message Shadow { int32 x = 1; }
}
enum Shadow { NIL = 0; }
"""
BASE: Final = """
syntax = "proto3";
package a.b;
import public "leaf.proto";
message Base { Leaf leaf = 1; }
"""
LEAF: Final = 'syntax = "proto3"; package a.b; message Leaf { int32 x = 1; }'
OUTER: Final = """
syntax = "proto3";
package a.b.c;
message Deep { int32 y = 1; }
"""
SHADOW: Final = 'syntax = "proto3"; message Shadow { string s = 1; }'

SOURCES: Final[dict[str, dict[str, str]]] = {
    "proto3": {"main.proto": PROTO3},
    "proto2": {"main.proto": PROTO2},
    "no syntax": {"main.proto": NO_SYNTAX},
    "edition": {"main.proto": EDITION},
    "delimited": {"main.proto": DELIMITED},
    "scopes": {
        "main.proto": SCOPES.replace(
            'import "outer.proto";', 'import "outer.proto";\nimport weak "shadow.proto";'
        ),
        "base.proto": BASE,
        "leaf.proto": LEAF,
        "outer.proto": OUTER,
        "shadow.proto": SHADOW,
    },
    "nothing": {"main.proto": "\ufeff// nothing\n;;\n"},
}
"""Files by name, of each case; the main one is main.proto."""
