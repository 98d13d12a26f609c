"""`Record`: declared and validated like a pydantic model, but pydantic is imported only for values that need it.

Importing pydantic is half of a cold start. Most settings are defaults and most arguments are a string and a number,
so records validate such plain values themselves. Everything else is validated by a pydantic model that is built from
the same declaration.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Literal,
    Self,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

from surehand.core.names import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

_MISSING: Final = object()


class Spec:
    """The declaration of a field beside its type: default, alias, and the options of pydantic's `Field`."""

    __slots__ = ("alias", "default", "factory", "options")

    def __init__(self, default: Any, factory: Callable[[], Any] | None, alias: str | None, options: dict[str, Any]):
        self.default = default
        self.factory = factory
        self.alias = alias
        self.options = options

    @property
    def required(self) -> bool:
        """Whether the field has no default."""
        return self.default is _MISSING and self.factory is None

    def value(self) -> Any:
        """Return the default of the field."""
        return self.default if self.factory is None else self.factory()

    def to_pydantic(self) -> Any:
        """Convert to pydantic's own `Field`."""
        import pydantic

        options = dict(self.options)
        if self.alias is not None:
            options["alias"] = self.alias
        if self.factory is not None:
            options["default_factory"] = self.factory
        elif not self.required:
            options["default"] = self.default
        return pydantic.Field(**options)

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Enforce `Annotated[int, Field(ge=1)]` inside a pydantic model of a caller."""
        return handler.generate_schema(Annotated[source, self.to_pydantic()])


_OPTIONS: Final = frozenset({
    "allow_inf_nan", "decimal_places", "deprecated", "discriminator", "examples", "exclude", "ge", "gt",
    "json_schema_extra", "le", "lt", "max_digits", "max_length", "min_length", "multiple_of", "pattern", "repr",
    "serialization_alias", "strict", "title", "union_mode", "validate_default", "validation_alias",
})  # fmt: skip
_MEANT: Final = {"minimum": "ge", "min": "ge", "maximum": "le", "max": "le", "regex": "pattern"}
"""Option names of other libraries → ours, for suggestions."""


def with_pydantic_fields(hint: Any) -> Any:
    """Replace every `Field` of ours inside a type, at any depth, by pydantic's."""
    inside = get_args(hint)
    if not inside or get_origin(hint) is Literal:
        return hint
    if get_origin(hint) is Annotated:
        told = tuple(each.to_pydantic() if isinstance(each, Spec) else each for each in hint.__metadata__)
        return Annotated[(with_pydantic_fields(inside[0]), *told)]
    changed = tuple(each if each is ... else with_pydantic_fields(each) for each in inside)
    if changed == inside:
        return hint
    if get_origin(hint) in (Union, UnionType):
        return Union[changed]  # noqa: UP007  # made of a tuple
    return hint.copy_with(changed) if hasattr(hint, "copy_with") else get_origin(hint)[changed]


def Field(  # noqa: N802  # the name people know from pydantic
    default: Any = _MISSING,
    *,
    default_factory: Callable[[], Any] | None = None,
    alias: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Any:
    """Declare a field: its default, its description, and constraints as pydantic's `Field` names them."""
    if unknown := options.keys() - _OPTIONS:
        word = sorted(unknown)[0]
        raise TypeError(f"Field takes no {word!r}{did_you_mean(_MEANT.get(word, word), _OPTIONS)}")
    if description is not None:
        options["description"] = description
    return Spec(default, default_factory, alias, options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(Field,))
class Record:
    """A frozen record of typed fields. `X(**values)` raises pydantic's ValidationError for invalid or unknown ones."""

    _specs: ClassVar[dict[str, Spec]] = {}
    _hints: ClassVar[dict[str, tuple[Any, str]]] = {}
    """Each field's annotation (as text) and the module to evaluate it in."""
    _built: ClassVar[type[BaseModel] | None] = None

    def __init_subclass__(cls) -> None:
        specs, hints = dict(cls._specs), dict(cls._hints)
        for name, hint in vars(cls).get("__annotations__", {}).items():
            if name.startswith("_") or "ClassVar" in str(hint):
                continue
            hints[name] = (hint, cls.__module__)
            value = cls.__dict__.get(name, _MISSING)
            specs[name] = value if isinstance(value, Spec) else Spec(value, None, None, {})
            if value is not _MISSING:
                delattr(cls, name)
        cls._specs, cls._hints = specs, hints
        cls._built = None

    def __init__(self, **values: Any) -> None:
        plain = _plain(type(self), values, by_name=True)
        self.__dict__.update(plain if plain is not None else _check_by_pydantic(type(self), values, strict=False))

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, strict: bool = False) -> Self:
        """Validate `raw`, whose keys are aliases where declared; raise pydantic's ValidationError."""
        plain = _plain(cls, raw, nested=not strict)
        return cls._of(plain if plain is not None else _check_by_pydantic(cls, raw, strict=strict))

    @classmethod
    def parse_plain(cls, raw: Mapping[str, Any]) -> Self | None:
        """Validate `raw` without pydantic; None if a value needs it."""
        plain = _plain(cls, raw)
        return None if plain is None else cls._of(plain)

    def faults(self) -> Iterable[tuple[str, str]]:
        """Yield (field, message) for faults that types cannot express; overridden by arguments of tools."""
        return ()

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> Self:
        made = object.__new__(cls)
        made.__dict__.update(values)
        return made

    @classmethod
    def pydantic_model(cls) -> type[BaseModel]:
        """Return the pydantic model of this record, built on first use."""
        if cls._built is None:
            cls._built = _build(cls)
        return cls._built

    @classmethod
    @cache
    def hint(cls, name: str) -> Any:
        """Evaluate a field's annotation in the module that wrote it."""
        written, module = cls._hints[name]
        return eval(written, vars(sys.modules[module])) if isinstance(written, str) else written

    @classmethod
    def fields(cls) -> Mapping[str, Spec]:
        """Return the declared fields by name."""
        return cls._specs

    def replace_values(self, **values: Any) -> Self:
        """Return a copy with some values replaced."""
        return self._of({**self.__dict__, **values})

    def to_dict(self) -> dict[str, Any]:
        """Return the values as plain data."""
        return {name: _data(value) for name, value in self.__dict__.items()}

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen; {name!r} cannot be set")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # pyright: ignore[reportAssignmentType]  # values may be dicts

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def of_model(value: Any, check: Any) -> Any:
            return value if isinstance(value, cls) else cls._of(check(value).__dict__)

        return core_schema.no_info_wrap_validator_function(of_model, handler.generate_schema(cls.pydantic_model()))

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return handler(cls.pydantic_model().__pydantic_core_schema__)


def _data(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, dict):
        return {key: _data(each) for key, each in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_data(each) for each in cast("list[Any]", value)]
    return value


# -- validation without pydantic --------------------------------------------------------------------------------------

_NONE: Final = type(None)
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "float": (float, int),
    "str | None": (str, _NONE),
    "int | None": (int, _NONE),
    "bool | None": (bool, _NONE),
    "float | None": (float, int, _NONE),
}
_SCALARS: Final = frozenset({str, int, bool, float})
_HARMLESS: Final = frozenset({"description", "examples", "title", "json_schema_extra"})
_CHECKS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "ge": lambda value, bound: value >= bound,
    "gt": lambda value, bound: value > bound,
    "le": lambda value, bound: value <= bound,
    "lt": lambda value, bound: value < bound,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
}


def _plain(
    cls: type[Record], raw: Mapping[str, Any], *, by_name: bool = False, nested: bool = False
) -> dict[str, Any] | None:
    """Return the values of all fields if every given value is plainly valid; None if pydantic must decide.

    `nested` also accepts tables and lists: settings files have them, most arguments do not.
    """
    if type(raw) is not dict:
        return None
    given = cast("dict[str, Any]", raw)
    values: dict[str, Any] = {}
    hints = cls._hints  # pyright: ignore[reportPrivateUsage]
    used = 0
    for name, spec in cls.fields().items():
        key = name if by_name or spec.alias is None else spec.alias
        if key in given:
            value = given[key]
            if not _fits(value, hints[name][0], spec.options):
                value = (
                    _convert_plain(value, cls.hint(name), nested) if _HARMLESS.issuperset(spec.options) else _MISSING
                )
                if value is _MISSING:
                    return None
            values[name] = value
            used += 1
        elif spec.required:
            return None
        else:
            values[name] = spec.value()
    return values if used == len(given) else None


def _fits(value: Any, hint: Any, options: Mapping[str, Any]) -> bool:
    kinds = _TYPES.get(hint)
    if kinds is None or type(value) not in kinds:
        return False
    if value is None:
        return True
    if type(value) is str and not value.isascii() and not _encodes(value):
        return False
    for option, bound in options.items():
        if option in _HARMLESS:
            continue
        check = _CHECKS.get(option)
        if check is None or not check(value, bound):
            return False
    return True


def _convert_plain(value: Any, hint: Any, nested: bool = True) -> Any:
    """Convert a value to a field's type; `_MISSING` if pydantic must decide."""
    kind, inside = get_origin(hint), get_args(hint)
    if kind is Literal:
        return value if type(value) is str and value in inside else _MISSING
    if kind in (Union, UnionType) and len(inside) == 2 and inside[1] is _NONE:
        return None if value is None else _convert_plain(value, inside[0], nested)
    if not nested:
        return _MISSING
    if isinstance(hint, type) and issubclass(hint, Record):
        inner = _plain(hint, value, nested=True)
        return _MISSING if inner is None else hint._of(inner)  # pyright: ignore[reportPrivateUsage]
    if kind is tuple and inside[1:] == (...,) and type(value) is list:
        members = [_convert_plain(each, inside[0]) for each in cast("list[Any]", value)]
        return _MISSING if _MISSING in members else tuple(members)
    if kind is dict and inside[0] is str and type(value) is dict:
        table = {key: _convert_plain(each, inside[1]) for key, each in cast("dict[Any, Any]", value).items()}
        plain = all(_fits(key, "str", {}) for key in table) and _MISSING not in table.values()
        return table if plain else _MISSING
    return value if hint in _SCALARS and _fits(value, hint.__name__, {}) else _MISSING


def _encodes(text: str) -> bool:
    try:
        for start in range(0, len(text), _ENCODED_AT_ONCE):
            text[start : start + _ENCODED_AT_ONCE].encode()
    except UnicodeEncodeError:
        return False  # a lone surrogate: pydantic refuses it
    return True


_ENCODED_AT_ONCE: Final = 1 << 20
"""Characters encoded per step, so that a huge text is not encoded as a whole just to test it."""


# -- validation by pydantic -------------------------------------------------------------------------------------------


def _check_by_pydantic(cls: type[Record], raw: Mapping[str, Any], *, strict: bool) -> dict[str, Any]:
    return cls.pydantic_model().__pydantic_validator__.validate_python(raw, strict=strict).__dict__


def _build(cls: type[Record]) -> type[BaseModel]:
    import pydantic

    fields = {name: (with_pydantic_fields(cls.hint(name)), spec.to_pydantic()) for name, spec in cls.fields().items()}
    config = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True, populate_by_name=True)
    return pydantic.create_model(cls.__name__, __config__=config, __doc__=None, **cast("dict[str, Any]", fields))


class Args(Record):
    """Base of the built-in tools' arguments."""


def hide_default(schema: dict[str, Any]) -> None:
    """Omit a default from the schema, whose description states it: `Field(..., json_schema_extra=hide_default)`."""
    schema.pop("default", None)
