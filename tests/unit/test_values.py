"""Dataclasses whose methods are compiled later behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, get_type_hints

import pytest

from kfast import _values

Decorator = Callable[..., Any]


def point_of(dataclass: Decorator, **how: Any) -> Any:
    @dataclass(**how)
    class Point:
        """A place."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 2
        tags: list[str] = _values.field(default_factory=list, compare=False)
        note: str = _values.field(default="", repr=False)
        made: int = _values.field(default=7, init=False)
        size: int = _values.field(default=1, kw_only=True)

        def __post_init__(self) -> None:
            assert self.kind == "point"

    Point.__qualname__ = "Point"
    return Point


@dataclasses.dataclass(frozen=True)
class Base:
    """A frozen base of the standard library."""

    a: int = 1


@_values.dataclass(frozen=True, slots=True)
class Called:
    """One whose instances are called."""

    a: int = 1

    def __call__(self, *, b: int) -> int:
        return self.a + b


@_values.dataclass(frozen=True, slots=True)
class Kept:
    """One that is pickled."""

    a: int
    b: tuple[int, ...] = ()


def test_the_signature_of_an_instance_is_that_of_its_call() -> None:
    assert list(inspect.signature(Called).parameters) == ["a"]
    assert list(inspect.signature(Called()).parameters) == ["b"]
    with pytest.raises(TypeError, match="not a callable object"):
        inspect.signature(Kept(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("eq", [False, True])
@pytest.mark.parametrize("before", [0, _values._FEW], ids=["first", "compiled"])
def test_it_is_what_the_standard_decorator_makes(
    frozen: bool, slots: bool, eq: bool, before: int
) -> None:
    """Arguments, defaults, comparison, hash, representation, copies and signature."""
    how = {"frozen": frozen, "slots": slots, "eq": eq}
    own, other = point_of(_values.dataclass, **how), point_of(dataclasses.dataclass, **how)
    first = own.__init__
    for _ in range(before):
        own(1)
    assert own.__init__ is first
    assert own.__match_args__ == other.__match_args__
    assert [each.name for each in dataclasses.fields(own)] == [
        each.name for each in dataclasses.fields(other)
    ]
    for cls in (own, other):
        one, same, else_ = cls(1, tags=["t"], size=3), cls(1, size=3), cls(1, 5)
        assert repr(one) == "Point(x=1, y=2, tags=['t'], made=7, size=3)"
        assert (one == same, one == else_) == (eq, False)
        assert one != "text"
        assert dataclasses.replace(one, y=9).y == 9
        if cls is own or sys.version_info >= (3, 13):
            assert one.__replace__(y=9).y == 9
        assert copy.deepcopy(one).tags == ["t"]
        assert cls(1).tags is not cls(1).tags
        for args, given in (
            ((), {}),
            ((1, 2, [], "", 7), {}),
            ((1,), {"x": 1}),
            ((1,), {"made": 1}),
            ((1,), {"z": 1}),
        ):
            with pytest.raises(TypeError, match=r"__init__\(\)"):
                cls(*args, **given)
        assert (cls.__hash__ is None) == (eq and not frozen)
        if eq and frozen:
            assert hash(one) == hash(same)
        assert hasattr(one, "__dict__") != slots
        if frozen:
            with pytest.raises(dataclasses.FrozenInstanceError, match="field 'x'"):
                one.x = 4
            with pytest.raises(dataclasses.FrozenInstanceError, match="field 'x'"):
                del one.x
        else:
            one.x = 4
            assert one.x == 4
    assert str(inspect.signature(own)) == str(inspect.signature(other))


def test_methods_of_the_class_stay() -> None:

    @_values.dataclass(frozen=True)
    class Odd:  # noqa: PLW1641 - the decorator gives it one
        """Has methods of its own."""

        a: int = 1

        def __eq__(self, other: object) -> bool:
            return True

        def __repr__(self) -> str:
            return "odd"

    assert (Odd(1) == Odd(2), repr(Odd()), hash(Odd(1)) == hash(Odd(1))) == (True, "odd", True)


def refused(cls: Any) -> None:
    with pytest.raises(TypeError):
        cls()


@pytest.mark.parametrize(
    "often",
    [
        lambda cls: [cls(1) for _ in range(_values._FEW + 1)],
        refused,
        inspect.signature,
    ],
    ids=["objects", "mistake", "signature"],
)
def test_a_constructor_is_compiled_when_it_is_used_often(often: Callable[[Any], Any]) -> None:
    """Importing a module compiles none, and making a few objects does not either."""
    cls = point_of(_values.dataclass, frozen=True)
    first = cls.__init__
    one = cls(1)
    assert (one == cls(1), hash(one)) == (True, hash(cls(1)))
    assert cls.__init__ is first
    often(cls)
    assert cls.__init__ is not first
    assert cls.__init__.__qualname__ == "Point.__init__"
    assert one == cls(1)


def test_a_factory_is_not_called_for_what_is_no_object() -> None:
    made: list[int] = []

    @_values.dataclass
    class Counted:
        """Has a field whose factory is counted."""

        a: int
        b: list[int] = _values.field(default_factory=lambda: made.append(1) or [])  # type: ignore[func-returns-value]

    with pytest.raises(TypeError):
        Counted()  # type: ignore[call-arg]
    assert made == []
    assert Counted(1).b == []
    assert made == [1]


def test_a_mutable_default_is_refused() -> None:
    for dataclass in (_values.dataclass, dataclasses.dataclass):
        with pytest.raises(ValueError, match=r"mutable default .*use default_factory"):
            dataclass(type("Shared", (), {"a": [], "__annotations__": {"a": "list[int]"}}))


@pytest.mark.parametrize("slots", [False, True])
def test_the_standard_decorator_finds_the_fields_when_something_looks_at_them(slots: bool) -> None:
    """Making objects is no such thing; attributes of the class are as after the standard one."""
    own = point_of(_values.dataclass, slots=slots)
    other = point_of(dataclasses.dataclass, slots=slots)
    own(1)
    assert not isinstance(vars(own)["__dataclass_fields__"], dict)
    assert own(1).__dataclass_params__.frozen is False
    assert isinstance(vars(own)["__dataclass_fields__"], dict)
    for one, same in zip(dataclasses.fields(own), dataclasses.fields(other), strict=True):
        assert repr(one) == repr(same)
    attributes = {"y", "tags", "note", "made", "size", "kind"}
    assert vars(own).keys() & attributes == vars(other).keys() & attributes
    if not slots:
        assert (own.y, own.note, own.made, own.size) == (2, "", 7, 1)


def test_declared_fields_are_those_that_objects_have() -> None:
    """Read before and after something has looked at them, and of a class with a base."""

    @_values.dataclass(frozen=True)
    class More(Kept):
        """Has a base, and an attribute that is none of its fields."""

        kind: ClassVar[str] = "more"
        c: int = _values.field(default=1)

    point = point_of(_values.dataclass)
    for cls in (More, point, Kept):
        declared = _values.declared_fields(cls)
        assert [*declared] == [each.name for each in dataclasses.fields(cls)]
        assert [*_values.declared_fields(cls)] == [*declared]
    assert _values.declared_fields(More)["c"].default == 1


def test_frozen_bases_and_orders_are_the_standard_ones() -> None:

    @_values.dataclass(frozen=True)
    class More(Base):
        """Has a frozen base."""

        b: int = 2

    @_values.dataclass(order=True)
    class Ordered:
        """Has an order."""

        a: int

    @dataclasses.dataclass(frozen=True)
    class Users(Kept):
        """One that a user derives."""

        c: int = 3

    assert repr(More(5)).endswith("More(a=5, b=2)")
    assert Ordered(1) < Ordered(2)
    assert Users(1).c == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Users(1).a = 2  # type: ignore[misc]


def test_they_pickle() -> None:
    kept = Kept(1, (2,))
    assert pickle.loads(pickle.dumps(kept)) == kept


class Tuple(_values.NamedTuple):
    """Has a method."""

    a: int
    b: str = "b"
    """The second."""

    @property
    def both(self) -> str:
        """Both."""
        return f"{self.a}{self.b}"

    @classmethod
    def of(cls, a: int) -> Tuple:
        """Make one."""
        return cls(a)


class Standard(NamedTuple):
    """Has a method."""

    a: int
    b: str = "b"


def test_named_tuples_are_those_of_the_standard_library() -> None:
    one = Tuple.of(1)
    assert (one, repr(one), one.both) == ((1, "b"), "Tuple(a=1, b='b')", "1b")
    assert one._replace(b="c") == Tuple(1, "c")
    assert pickle.loads(pickle.dumps(one)) == one
    assert get_type_hints(Tuple) == get_type_hints(Standard) == {"a": int, "b": str}
    assert Tuple._fields == Standard._fields
    assert Tuple._field_defaults == Standard._field_defaults
    assert (Tuple.__module__, Tuple.__doc__) == (Standard.__module__, Standard.__doc__)
    assert str(inspect.signature(Tuple)) == "(a: 'int', b: 'str' = 'b')"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Tuple()  # type: ignore[call-arg]
