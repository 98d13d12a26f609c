"""`@frozen`: a drop-in for `@dataclass(frozen=True, slots=True)` at a tenth of its import-time cost.

A dataclass compiles five methods per class, half a millisecond in all, though a process never uses most of the
classes it imports. Here methods are shared between classes, and `__init__` is compiled only once several objects were
made. `dataclasses.replace`, `fields` and `asdict` work as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform, overload

from surehand.core.names import did_you_mean

C = TypeVar("C")

_MISSING: Final = object()
_COMPILE_AFTER: Final = 8
"""Instances initialized field by field before `__init__` is compiled, which costs as much as fifty of them."""


class _Field:
    __slots__ = ("default", "factory", "init", "kw_only", "repr")

    def __init__(self, default: Any, factory: Callable[[], Any] | None, init: bool, repr: bool) -> None:
        self.default = default
        self.factory = factory
        self.init = init
        self.repr = repr
        self.kw_only = False


def field(
    *,
    default: Any = _MISSING,
    default_factory: Callable[[], Any] | None = None,
    init: bool = True,
    repr: bool = True,
) -> Any:
    """Declare a field with a default factory, a callable as its default, or hidden from `__init__` or `repr`."""
    return _Field(default, default_factory, init, repr)


def replace_values(record: C, **values: Any) -> C:
    """Return a copy with some values replaced; unlike `dataclasses.replace` it builds no dataclass first."""
    made: Any = record
    kept = {name: getattr(made, name) for name, each in made._fields.items() if each.init}
    return type(record)(**kept | values)


def names_of(record: Any) -> tuple[str, ...]:
    """Return the names of all fields of a record or of its class."""
    return tuple(record._fields)


@overload
def frozen(cls: type[C], /) -> type[C]: ...
@overload
def frozen(*, kw_only: bool = False, eq: bool = True) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: Any = None, /, *, kw_only: bool = False, eq: bool = True) -> Any:
    """Make a class of annotated fields a frozen record with slots."""

    def make(cls: Any) -> Any:
        return _record(cls, kw_only, eq)

    return make if cls is None else make(cls)


def _record(cls: Any, kw_only: bool, eq: bool) -> Any:
    members: dict[str, Any] = dict(cls.__dict__)
    hints: dict[str, Any] = members.get("__annotations__", {})
    members.pop("__dict__", None)
    members.pop("__weakref__", None)
    own = {name: _own(members, name, kw_only) for name, hint in hints.items() if "ClassVar" not in str(hint)}
    inherited = {name: each for base in reversed(cls.__mro__) for name, each in getattr(base, "_fields", {}).items()}
    fields: dict[str, _Field] = inherited | own
    members |= {
        "__slots__": tuple(own),
        "__match_args__": tuple(name for name, each in fields.items() if each.init and not each.kw_only),
        "__dataclass_fields__": _OfDataclass("__dataclass_fields__"),
        "__dataclass_params__": _OfDataclass("__dataclass_params__"),
        "_fields": fields,
        "_values": attrgetter(*fields) if fields else staticmethod(_nothing),
    }
    for name, method in (_SHARED | _EQUALITY if eq else _SHARED).items():
        members.setdefault(name, method)
    made = type(cls)(cls.__name__, cls.__bases__, members)
    made.__qualname__ = cls.__qualname__
    made.__init__ = _first_init(made)
    return made


def _own(members: dict[str, Any], name: str, kw_only: bool) -> _Field:
    value = members.pop(name, _MISSING)
    own = value if isinstance(value, _Field) else _Field(value, None, init=True, repr=True)
    own.kw_only = kw_only
    return own


# -- making objects ---------------------------------------------------------------------------------------------------


def _first_init(cls: Any) -> Callable[..., None]:
    left = _COMPILE_AFTER

    def init(self: Any, *args: Any, **values: Any) -> None:
        nonlocal left
        left -= 1
        if left < 0 or not _set_fields(cls, self, args, values):
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, *args, **values)

    return init


def _set_fields(cls: Any, record: Any, args: tuple[Any, ...], values: dict[str, Any]) -> bool:
    """Set the fields one by one; False if the arguments do not fit: the compiled `__init__` then raises the error."""
    given = dict(zip(cls.__match_args__, args, strict=False)) | values
    if len(given) < len(args) + len(values):
        return False
    for name, each in cls._fields.items():
        if not each.init:  # `__post_init__` sets it
            continue
        value = given.pop(name, each.default)
        if value is _MISSING:
            if each.factory is None:
                return False
            value = each.factory()
        getattr(cls, name).__set__(record, value)
    if given:
        return False
    if hasattr(cls, "__post_init__"):
        record.__post_init__()
    return True


def _compile_init(cls: Any) -> Callable[..., None]:
    """Compile `__init__`. It sets the slots by their descriptors, since `__setattr__` refuses."""
    names: dict[str, Any] = {"_MISSING": _MISSING}
    positional, keywords = ["self"], ["*"]
    body: list[str] = []
    for name, each in cls._fields.items():
        names |= {f"_set_{name}": getattr(cls, name).__set__, f"_new_{name}": each.factory, f"_{name}": each.default}
        if not each.init:  # `__post_init__` sets it
            continue
        default = "" if each.default is _MISSING else f"=_{name}"
        (keywords if each.kw_only else positional).append(f"{name}=_MISSING" if each.factory else name + default)
        value = f"_new_{name}() if {name} is _MISSING else {name}" if each.factory else name
        body.append(f"_set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if len(keywords) > 1:
        # A misspelt keyword (`readonly=`) gets a suggestion; only records that are written by hand pay for it.
        keywords.append("**_unknown")
        body.insert(0, "if _unknown: _refuse_unknown(type(self), _unknown)")
        names["_refuse_unknown"] = _refuse_unknown
    parameters = ", ".join(positional + (keywords if len(keywords) > 1 else []))
    exec(f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"]), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _refuse_unknown(cls: Any, unknown: dict[str, Any]) -> None:
    known = [name for name, each in cls._fields.items() if each.init]
    said = ", ".join(f"{name!r}{did_you_mean(name, known)}" for name in unknown)
    raise TypeError(f"{cls.__name__} has no option {said}")


class _OfDataclass:
    """Placeholder for an attribute of a dataclass that the standard library looks for; built on first access."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, record: Any, cls: Any) -> Any:
        import dataclasses

        declared = [(name, cls.__annotations__.get(name, Any), _as_field(each)) for name, each in cls._fields.items()]
        made: Any = dataclasses.make_dataclass(cls.__name__, declared, eq=False, repr=False, frozen=True)
        setattr(cls, self.name, getattr(made, self.name))
        return getattr(made, self.name)


def _as_field(each: _Field) -> Any:
    import dataclasses

    options: dict[str, Any] = {"init": each.init, "repr": each.repr, "kw_only": each.kw_only}
    if each.factory is not None:
        options["default_factory"] = each.factory
    elif each.default is not _MISSING:
        options["default"] = each.default
    return dataclasses.field(**options)


# -- what all records share -------------------------------------------------------------------------------------------


def _refuse(self: Any, name: str, value: Any = None) -> None:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"{type(self).__name__} is frozen; {name!r} cannot be changed")


def _format_record(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name, each in self._fields.items() if each.repr)
    return f"{type(self).__qualname__}({fields})"


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self._fields]


def _restore(self: Any, state: list[Any]) -> None:
    for name, value in zip(self._fields, state, strict=True):
        object.__setattr__(self, name, value)


def _equal(self: Any, other: object) -> Any:
    return self._values(self) == self._values(other) if type(other) is type(self) else NotImplemented


def _nothing(record: Any) -> tuple[()]:
    return ()


def _hash(self: Any) -> int:
    return hash(self._values(self))


_SHARED: Final[dict[str, Any]] = {
    "__setattr__": _refuse,
    "__delattr__": _refuse,
    "__repr__": _format_record,
    "__getstate__": _state,
    "__setstate__": _restore,
}
_EQUALITY: Final[dict[str, Any]] = {"__eq__": _equal, "__hash__": _hash}
