"""`dataclass` and `NamedTuple` as in the standard library, for classes of short commands.

Methods of a `dataclass` are compiled when they are used often.

The standard decorator compiles three to six methods of a class when its module is imported. For the
hundred classes of a short command that was a sixth of its time, and compiling the constructors of
the seventy that it uses, most of them once, was another. Here the first objects of a class are made
by a function that all classes share; ``__init__``, ``__eq__`` and ``__hash__`` are compiled
together when there are `_FEW` objects, or at a first comparison. ``dataclasses.fields``,
``replace`` and ``inspect.signature`` work as usual; type checkers see the standard decorator. There
is no ``InitVar``, and ``order`` is the standard one's.

Any thread: two that compile at once make the same methods.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
from dataclasses import field, replace
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass", "field", "replace"]

_FEW = 16
"""So many objects of a class take as long to make one by one as their constructor to compile."""

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
    from typing import NamedTuple
else:

    class _NamedTupleType(type):
        def __new__(cls, name, _bases, namespace):
            names = namespace["__annotations__"]
            made = collections.namedtuple(
                name,
                names,
                defaults=[namespace[each] for each in names if each in namespace],
                module=namespace["__module__"],
            )
            made.__new__.__annotations__ = names
            for each in namespace.keys() - names.keys() - {"__module__"}:
                setattr(made, each, namespace[each])
            return made

    class _NamedTuple:
        """As `typing.NamedTuple`, which compiles each annotation and took three times as long."""

        def __mro_entries__(self, _bases):
            return (_ROOT,)

    _ROOT = type.__new__(_NamedTupleType, "NamedTuple", (), {})
    NamedTuple = _NamedTuple()

    def dataclass(
        cls=None,
        /,
        *,
        init=True,
        repr=True,
        eq=True,
        order=False,
        frozen=False,
        slots=False,
        kw_only=False,
    ):
        """Make a dataclass of a class; the arguments are those of ``dataclasses.dataclass``."""

        def decorated(cls):
            bases = (getattr(base, "__dataclass_params__", None) for base in cls.__mro__[1:])
            if order or any(params is not None and params.frozen for params in bases):
                return dataclasses.dataclass(
                    init=init,
                    repr=repr,
                    eq=eq,
                    order=order,
                    frozen=frozen,
                    slots=slots,
                    kw_only=kw_only,
                )(cls)
            return _decorated(cls, init, repr, eq, frozen, slots, kw_only)

        return decorated if cls is None else decorated(cls)


def _decorated(
    cls: type, init: bool, repr: bool, eq: bool, frozen: bool, slots: bool, kw_only: bool
) -> type:
    own = {*vars(cls)}
    if "__eq__" in own and vars(cls)["__hash__"] is None:
        own.discard("__hash__")  # set by Python itself, for want of one
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # for want of one the standard library parses its signature
    made: Any = dataclasses.dataclass(
        init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
    )(cls)
    lazy = ["__init__"] if init and "__init__" not in own else []
    if eq and "__eq__" not in own:
        lazy.append("__eq__")
    if eq and frozen and "__hash__" not in own:
        lazy.append("__hash__")
    elif eq and "__hash__" not in own:
        made.__hash__ = None
    for name in lazy:
        setattr(made, name, (_first_init if name == "__init__" else _stub)(made, name, lazy))
    if "__init__" in lazy:
        made.__signature__ = _Signature(made, lazy)
    if repr and "__repr__" not in own:
        made.__repr__ = _repr
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        made.__dataclass_params__.frozen = True
        if slots and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _state, _set_state
    return made  # type: ignore[no-any-return]


# --- before they are compiled ---------------------------------------------------------------------


def _first_init(cls: Any, _name: str, names: list[str]) -> Callable[..., None]:
    """Return an ``__init__`` for the first objects of a class, also those of its subclasses.

    Arguments that it does not take are left to the compiled one, which has the error for them.
    """
    left = _FEW
    plan: _Plan | None = None

    def __init__(self: Any, /, *args: Any, **given: Any) -> None:
        nonlocal left, plan
        left -= 1
        plan = plan or _Plan(cls)
        if left < 0 or not plan.set_fields(self, args, given):
            _compile(cls, names)
            cls.__init__(self, *args, **given)

    return __init__


class _Plan:
    """How the fields of an object are set one by one."""

    def __init__(self, cls: Any) -> None:
        every = dataclasses.fields(cls)
        self._set: Any = object.__setattr__ if cls.__dataclass_params__.frozen else setattr
        self._positional = [each.name for each in every if each.init and not each.kw_only]
        self._known = {each.name for each in every if each.init}
        self._fields: list[tuple[str, Any, Any]] = [
            (each.name, each.default, each.default_factory)
            for each in every
            if each.init or not _has_no_default(each)
        ]
        self._required = {each.name for each in every if each.init and _has_no_default(each)}
        self._has_post_init = hasattr(cls, "__post_init__")

    def set_fields(self, made: Any, args: tuple[Any, ...], given: dict[str, Any]) -> bool:
        """Set them; False, with none of them set, if these are not the arguments."""
        values = dict(zip(self._positional, args, strict=False))
        if len(values) < len(args) or not given.keys().isdisjoint(values):
            return False
        values.update(given)
        if not self._required <= values.keys() or not given.keys() <= self._known:
            return False
        for name, default, factory in self._fields:
            if name in values:
                value = values[name]
            else:
                value = factory() if default is dataclasses.MISSING else default
            self._set(made, name, value)
        if self._has_post_init:
            made.__post_init__()
        return True


def _has_no_default(each: Any) -> bool:
    return dataclasses.MISSING is each.default and dataclasses.MISSING is each.default_factory


# --- compiled later -------------------------------------------------------------------------------


def _stub(cls: Any, name: str, names: list[str]) -> Callable[..., Any]:
    """Return a method that puts the compiled ones in the place of all stubs, and calls its own."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        _compile(cls, names)
        return getattr(cls, name)(self, *args, **kwargs)

    return method


def _compile(cls: Any, names: list[str]) -> None:
    scope = {"_new_": _NEW, "_set_": object.__setattr__, "__name__": cls.__module__}
    source = {"__init__": _init(cls, scope), "__eq__": _eq(cls), "__hash__": _hash(cls)}
    exec("\n".join(source[name] for name in names), scope)
    for name in names:
        method = scope[name]
        method.__qualname__ = f"{cls.__qualname__}.{name}"
        if name == "__init__":
            method.__annotations__ = {
                each.name: each.type for each in dataclasses.fields(cls) if each.init
            } | {"return": None}
        setattr(cls, name, method)


class _New:
    def __repr__(self) -> str:
        return "<factory>"


_NEW = _New()
"""Default of a parameter whose value a factory makes."""


def _init(cls: Any, scope: dict[str, Any]) -> str:
    positional: list[str] = []
    keywords: list[str] = []
    body: list[str] = []
    for each in dataclasses.fields(cls):
        name, value = each.name, each.name
        parameter = name
        if each.default is not dataclasses.MISSING:
            value = f"default_{name}"
            scope[value] = each.default
            parameter = f"{name}={value}"
        elif each.default_factory is not dataclasses.MISSING:
            scope[f"factory_{name}"] = each.default_factory
            value = f"factory_{name}()"
            parameter = f"{name}=_new_"
        elif not each.init:
            continue
        if each.init:
            (keywords if each.kw_only else positional).append(parameter)
            is_made = parameter == f"{name}=_new_"
            value = f"{value} if {name} is _new_ else {name}" if is_made else name
        body.append(
            f"_set_(self, {name!r}, {value})"
            if cls.__dataclass_params__.frozen
            else f"self.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    return f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]) + "\n"


def _eq(cls: Any) -> str:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    mine, others = (_tuple(f"{owner}.{name}" for name in names) for owner in ("self", "other"))
    return (
        "def __eq__(self, other):\n"
        f"  return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented\n"
    )


def _hash(cls: Any) -> str:
    names = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.compare if each.hash is None else each.hash)
    ]
    return f"def __hash__(self):\n  return hash({_tuple(f'self.{name}' for name in names)})\n"


def _tuple(parts: Any) -> str:
    return "(" + "".join(f"{part}, " for part in parts) + ")"


# --- shared by all classes ------------------------------------------------------------------------


class _Signature:
    """The parameters of a class, for ``help`` and ``inspect.signature``."""

    def __init__(self, cls: Any, names: list[str]) -> None:
        self._cls = cls
        self._names = names

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:  # whose parameters are those of its ``__call__``
            raise AttributeError("__signature__")
        if owner.__init__ is self._cls.__init__:
            _compile(self._cls, self._names)
        found = inspect.signature(owner.__init__)
        return found.replace(parameters=[*found.parameters.values()][1:])


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (
        f"{each.name}={getattr(self, each.name)!r}"
        for each in dataclasses.fields(self)
        if each.repr
    )
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(_self: Any, name: str, _value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
