"""Assignors of ``partition_assignment_strategy``: names, classes or objects.

Owns the table of kfast's own assignors and the rules for a list of them. Called when a consumer is
constructed, so that an error is raised there and not in the first rebalance.

The group runs the highest rebalance protocol that all assignors of the list support. With the
default, ``range`` and ``cooperative-sticky``, that is the eager one. When all members have dropped
``range``, it becomes the cooperative one: a group migrates without stopping.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from kfast._base.spelling import did_you_mean
from kfast.consumer.group.assignors.assignor import ConsumerPartitionAssignor, RebalanceProtocol
from kfast.consumer.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from kfast.consumer.group.assignors.range import RangeAssignor
from kfast.consumer.group.assignors.round_robin import RoundRobinAssignor
from kfast.consumer.group.assignors.sticky import StickyAssignor
from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ASSIGNORS: Final[Mapping[str, Callable[[], ConsumerPartitionAssignor]]] = MappingProxyType(
    {
        "range": RangeAssignor,
        "roundrobin": RoundRobinAssignor,
        "sticky": StickyAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
)
"""kfast's own assignors by the name members of all languages know them by."""

_SETTING: Final = "partition_assignment_strategy"
_METHODS: Final = ("assign", "subscription_user_data", "on_assignment")


def is_built_in(assignor: ConsumerPartitionAssignor) -> bool:
    """Return whether an assignor is kfast's own, not one a user wrote or derived."""
    return type(assignor) in ASSIGNORS.values()


def resolve_assignors(values: Iterable[object]) -> tuple[ConsumerPartitionAssignor, ...]:
    """Return one assignor per value, in order of preference.

    Values are names of kfast's own assignors, or classes or instances of a user's.

    Raises
    ------
    ConfigurationError
        A name is unknown, an object is not an assignor, two have one name, or the rebalance
        protocols have none in common.
    """
    assignors = tuple(_resolve(value) for value in values)
    if not assignors:
        raise ConfigurationError(f"bad value for {_SETTING}", cause="empty")
    names = [assignor.name for assignor in assignors]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(
            f"bad value for {_SETTING}", cause=f'two assignors have the name "{twice[0]}"'
        )
    select_rebalance_protocol(assignors)
    return assignors


def select_rebalance_protocol(
    assignors: Sequence[ConsumerPartitionAssignor],
) -> RebalanceProtocol:
    """Return the highest rebalance protocol all of the assignors support.

    Raises
    ------
    ConfigurationError
        There is none.
    """
    common = set(RebalanceProtocol).intersection(*(_protocols(item) for item in assignors))
    if common:
        return max(common, key=lambda protocol: protocol.value)
    shown = ", ".join(
        f"{item.name} ({'/'.join(sorted(p.name for p in _protocols(item)))})" for item in assignors
    )
    raise ConfigurationError(
        f"bad value for {_SETTING}: the assignors have no rebalance protocol in common",
        found=shown,
        hint="let an assignor support EAGER as well, or drop those that do not support COOPERATIVE",
    )


def _protocols(assignor: ConsumerPartitionAssignor) -> frozenset[RebalanceProtocol]:
    return frozenset(assignor.supported_protocols) or frozenset({RebalanceProtocol.EAGER})


def _resolve(value: object) -> ConsumerPartitionAssignor:
    if isinstance(value, str):
        if value not in ASSIGNORS:
            near = did_you_mean(value, ASSIGNORS)
            raise ConfigurationError(
                f'{_SETTING} has no assignor "{value}"',
                cause=f"kfast's own are {', '.join(ASSIGNORS)}",
                hint=f'did you mean "{near}"?' if near else "pass the class of one of your own",
            )
        return ASSIGNORS[value]()
    assignor: Any = value
    if isinstance(value, type):
        try:
            assignor = value()
        except Exception as error:
            raise ConfigurationError(
                f"{_SETTING}: {value.__name__} cannot be created without arguments",
                cause=f"{type(error).__name__}: {error}",
                hint="pass an instance",
            ) from error
    return _checked(assignor)


def _checked(assignor: Any) -> ConsumerPartitionAssignor:
    shown = type(assignor).__name__
    missing = [name for name in _METHODS if not callable(getattr(assignor, name, None))]
    name = getattr(assignor, "name", None)
    if not isinstance(name, str) or not name:
        missing.insert(0, "name")
    if missing:
        raise ConfigurationError(
            f"{_SETTING}: {shown} is not an assignor",
            cause=f"it lacks {', '.join(missing)}",
            hint=f'use "{name}", kfast\'s own'
            if name in ASSIGNORS
            else "derive it from kfast.ConsumerPartitionAssignor",
        )
    protocols = getattr(assignor, "supported_protocols", None)
    if not isinstance(protocols, frozenset | set) or not all(
        isinstance(protocol, RebalanceProtocol) for protocol in protocols
    ):
        raise ConfigurationError(
            f"{_SETTING}: {shown}.supported_protocols is not a set of kfast.RebalanceProtocol",
            found=repr(protocols),
        )
    result: ConsumerPartitionAssignor = assignor
    return result
