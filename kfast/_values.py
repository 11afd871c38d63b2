"""`dataclass` and `NamedTuple` as in the standard library, for classes of short commands.

Methods of a `dataclass` are compiled when they are used often.

The standard decorator compiles three to six methods of a class when its module is imported. For the
hundred classes of a short command that was a sixth of its time, and compiling the constructors of
the seventy that it uses, most of them once, was another. Here the first objects of a class are made
by a function that all classes share; ``__init__`` is compiled when there are `_FEW` objects,
``__eq__`` and ``__hash__`` when they are first called, and the standard decorator finds the fields
when something looks at them. ``dataclasses.fields``, ``replace`` and ``inspect.signature`` work as
usual; type checkers see the standard decorator. There is no ``InitVar`` and no ``KW_ONLY``, and
``order`` is the standard one's.

Any thread: two that compile at once make the same methods.
"""

from __future__ import annotations

import collections
import dataclasses
import inspect
from dataclasses import field, replace
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["NamedTuple", "dataclass", "declared_fields", "field", "replace"]

_FEW = 16
"""So many objects of a class take as long to make one by one as their constructor to compile."""

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass
    from typing import NamedTuple, TypeAlias
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
    made = _with_fields(cls, frozen, slots, kw_only)
    lazy = ["__init__"] if init and "__init__" not in own else []
    if eq and "__eq__" not in own:
        lazy.append("__eq__")
    if eq and frozen and "__hash__" not in own:
        lazy.append("__hash__")
    elif eq and "__hash__" not in own:
        made.__hash__ = None
    for name in lazy:
        setattr(made, name, _first_init(made) if name == "__init__" else _stub(made, name))
    if "__init__" in lazy:
        made.__signature__ = _Signature(made)
    if repr and "__repr__" not in own:
        made.__repr__ = _repr
    if frozen:
        made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        if slots and "__getstate__" not in own:
            made.__getstate__, made.__setstate__ = _state, _set_state
    return made  # type: ignore[no-any-return]


# --- fields ---------------------------------------------------------------------------------------

_MISSING: Any = dataclasses.MISSING
_FIELDS, _PARAMS = "__dataclass_fields__", "__dataclass_params__"


def _with_fields(cls: Any, frozen: bool, slots: bool, kw_only: bool) -> Any:
    """Return a dataclass without any of the methods that one has."""
    if any(_FIELDS in vars(base) for base in cls.__mro__[1:]):
        made: Any = _standard(cls, slots, kw_only)
        getattr(made, _PARAMS).frozen = frozen
        return made
    types = {
        name: kind
        for name, kind in vars(cls).get("__annotations__", {}).items()
        if not kind.startswith("ClassVar")
    }
    given = {name: vars(cls)[name] for name in types.keys() & vars(cls).keys()}
    if slots:
        left_out = {*given, "__dict__", "__weakref__"}
        namespace = {name: each for name, each in vars(cls).items() if name not in left_out}
        made = type(cls)(cls.__name__, cls.__bases__, namespace | {"__slots__": (*types,)})
        made.__qualname__ = cls.__qualname__
    else:
        made = cls
        for name, value in given.items():
            if not isinstance(value, dataclasses.Field):
                continue
            if value.default is _MISSING:
                delattr(made, name)
            else:
                setattr(made, name, value.default)
    lazy = _LazyFields(made, types, given, frozen, kw_only)
    setattr(made, _FIELDS, lazy)
    setattr(made, _PARAMS, _LazyParams(lazy))
    made.__match_args__ = (*_positional(_parameters(made)),)  # type: ignore[misc]
    made.__replace__ = replace  # for ``copy.replace`` of Python 3.13
    return made


def _standard(cls: type, slots: bool, kw_only: bool) -> type:
    return dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(
        cls
    )


class _LazyFields:
    """In the place of the fields of a class, until something looks at them."""

    def __init__(
        self, cls: Any, types: dict[str, str], given: dict[str, Any], frozen: bool, kw_only: bool
    ) -> None:
        self._cls = cls
        self._types = types
        self._given = given
        self._frozen = frozen
        self.kw_only = kw_only

    def __get__(self, _instance: object, _owner: object) -> Any:
        self.find()
        return getattr(self._cls, _FIELDS)

    def find(self) -> None:
        """Put the fields, and what goes with them, in the place of this."""
        names = {name: getattr(self._cls, name) for name in ("__doc__", "__module__")}
        names["__annotations__"] = self._types
        found: Any = _standard(
            type(self._cls.__name__, (), names | self._given), False, self.kw_only
        )
        params = getattr(found, _PARAMS)
        params.frozen = self._frozen
        setattr(self._cls, _PARAMS, params)
        setattr(self._cls, _FIELDS, getattr(found, _FIELDS))

    def declared(self) -> dict[str, Any]:
        """Return what stands in the class for each field: a default, a ``field()``, `_MISSING`."""
        return {name: self._given.get(name, _MISSING) for name in self._types}


class _LazyParams:
    """In the place of the arguments of the decorator, until something looks at them."""

    def __init__(self, fields: _LazyFields) -> None:
        self._fields = fields

    def __get__(self, _instance: object, owner: Any) -> Any:
        self._fields.find()
        return getattr(owner, _PARAMS)


_Parameter: TypeAlias = tuple[str, Any, Any, bool, bool]
"""Name, default, factory of the default, and whether it is a parameter, and by keyword only."""


def _parameter(name: str, value: Any, kw_only: bool) -> _Parameter:
    if isinstance(value, dataclasses.Field):
        own: Any = value.kw_only
        is_keyword = kw_only if own is _MISSING else own
        return name, value.default, value.default_factory, value.init, is_keyword
    if type(value).__hash__ is None:
        raise ValueError(f"{name}: a mutable default is one of all objects; use default_factory")
    return name, value, _MISSING, True, kw_only


def _parameters(cls: Any) -> list[_Parameter]:
    """Return how each field is set when an object is made."""
    kw_only = getattr(vars(cls)[_FIELDS], "kw_only", False)
    return [_parameter(name, each, kw_only) for name, each in declared_fields(cls).items()]


def _positional(parameters: list[_Parameter]) -> list[str]:
    return [name for name, _, _, init, is_keyword in parameters if init and not is_keyword]


def declared_fields(cls: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name as they are declared: most with a ``field()``.

    It is there to be read quickly; ``dataclasses.fields`` is for everything else.
    """
    found = vars(cls)[_FIELDS]
    if isinstance(found, _LazyFields):
        return found.declared()
    return {each.name: each for each in dataclasses.fields(cls)}


# --- before they are compiled ---------------------------------------------------------------------


def _first_init(cls: Any) -> Callable[..., None]:
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
            _compile(cls, "__init__")
            cls.__init__(self, *args, **given)

    return __init__


class _Plan:
    """How the fields of an object are set one by one."""

    def __init__(self, cls: Any) -> None:
        every = _parameters(cls)
        self._set: Any = object.__setattr__ if cls.__setattr__ is _refuse_to_set else setattr
        self._positional = _positional(every)
        self._known = {name for name, _, _, init, _ in every if init}
        self._required = {
            name
            for name, default, factory, init, _ in every
            if init and default is _MISSING and factory is _MISSING
        }
        self._fields: list[tuple[str, Any, Any]] = [
            (name, default, factory)
            for name, default, factory, init, _ in every
            if init or not (default is _MISSING and factory is _MISSING)
        ]
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
                value = factory() if default is _MISSING else default
            self._set(made, name, value)
        if self._has_post_init:
            made.__post_init__()
        return True


# --- compiled later -------------------------------------------------------------------------------


def _stub(cls: Any, name: str) -> Callable[..., Any]:
    """Return a method that puts the compiled one in its place, and calls it."""

    def method(self: Any, *args: Any) -> Any:
        _compile(cls, name)
        return getattr(cls, name)(self, *args)

    return method


def _compile(cls: Any, name: str) -> None:
    scope = {"_new_": _NEW, "_set_": object.__setattr__, "__name__": cls.__module__}
    exec(_SOURCES[name](cls, scope), scope)
    method: Any = scope[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
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
    is_frozen = cls.__setattr__ is _refuse_to_set
    for name, default, factory, is_parameter, is_keyword in _parameters(cls):
        value = parameter = name
        if default is not _MISSING:
            value = f"default_{name}"
            scope[value] = default
            parameter = f"{name}={value}"
        elif factory is not _MISSING:
            scope[f"factory_{name}"] = factory
            value = f"factory_{name}()"
            parameter = f"{name}=_new_"
        elif not is_parameter:
            continue
        if is_parameter:
            (keywords if is_keyword else positional).append(parameter)
            is_made = parameter == f"{name}=_new_"
            value = f"{value} if {name} is _new_ else {name}" if is_made else name
        body.append(f"_set_(self, {name!r}, {value})" if is_frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join(["self", *positional, *(["*", *keywords] if keywords else [])])
    return f"def __init__({parameters}):\n  " + "\n  ".join(body or ["pass"]) + "\n"


def _eq(cls: Any, _scope: object) -> str:
    names = [each.name for each in dataclasses.fields(cls) if each.compare]
    mine, others = (_tuple(f"{owner}.{name}" for name in names) for owner in ("self", "other"))
    return (
        "def __eq__(self, other):\n"
        f"  return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented\n"
    )


def _hash(cls: Any, _scope: object) -> str:
    names = [
        each.name
        for each in dataclasses.fields(cls)
        if (each.compare if each.hash is None else each.hash)
    ]
    return f"def __hash__(self):\n  return hash({_tuple(f'self.{name}' for name in names)})\n"


def _tuple(parts: Any) -> str:
    return "(" + "".join(f"{part}, " for part in parts) + ")"


_SOURCES: dict[str, Callable[[Any, dict[str, Any]], str]] = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
}


# --- shared by all classes ------------------------------------------------------------------------


class _Signature:
    """The parameters of a class, for ``help`` and ``inspect.signature``."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: Any) -> inspect.Signature:
        if instance is not None:  # whose parameters are those of its ``__call__``
            raise AttributeError("__signature__")
        if owner.__init__ is self._cls.__init__:
            _compile(self._cls, "__init__")
            types = {each.name: each.type for each in dataclasses.fields(self._cls) if each.init}
            owner.__init__.__annotations__ = types | {"return": None}
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
