"""`Arguments`: a tool's input schema and the validation of its arguments.

One protocol, four sources: a pydantic model, a `Record`, the signature of a typed function, or the JSON Schema of a
foreign tool. Validators are built on first use, so ten thousand tools are registered without building one.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.names import did_you_mean
from surehand.core.record import Record, Spec, with_pydantic_fields
from surehand.core.schema_limits import (
    BACKTRACKS_LIMIT,
    FEW_BACKTRACKS,
    VALUE_CHECKS_LIMIT,
    SchemaWork,
    build_validators,
    limit_faults,
    may_exceed,
    survey,
)

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]


@frozen
class Fault:
    """One fault of the arguments: where, and what is wrong."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class InvalidArguments(Exception):
    """Raised by `Arguments.check`; lists every fault."""

    def __init__(self, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__("; ".join(map(str, faults)))


class Arguments(Protocol):
    """The description of a tool's arguments, which validates them."""

    __slots__ = ()

    def schema(self) -> Schema:
        """Return the JSON Schema (2020-12) of the arguments."""
        ...

    def check(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the validated arguments; raise InvalidArguments. `strict` converts no types."""
        ...

    def problems(self) -> list[str]:
        """Return the faults of the schema itself; empty if it is usable."""
        ...

    def is_slow(self, raw: object) -> bool:
        """Whether validating these values may be slow, so that it is done in a thread."""
        return False

    def check_at_once(self, raw: Mapping[str, Any]) -> Any | None:
        """Return the validated arguments; None if they are invalid or `check` may be slow."""
        try:
            return None if self.is_slow(raw) else self.check(raw)
        except InvalidArguments:
            return None

    def parse(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the validated arguments; raise pydantic's ValidationError, whichever the source of the schema."""
        try:
            return self.check(raw, strict=strict)
        except InvalidArguments as problem:
            faults = problem.faults
        from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

        lines = [
            InitErrorDetails(
                type=PydanticCustomError("invalid_argument", "{message}", {"message": fault.message}),
                loc=(fault.path,) if fault.path else (),
                input=raw,
            )
            for fault in faults
        ]
        raise ValidationError.from_exception_data("arguments", lines)


class ModelArguments(Arguments):
    """Arguments described by a pydantic model."""

    __slots__ = ("_invalid", "_schema", "_validate", "model")

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self._schema: Schema | None = None
        self._invalid: type[Exception] = Exception
        self._validate: Callable[..., Any] | None = None

    def schema(self) -> Schema:
        """Return the JSON Schema of the arguments."""
        schema = self._schema
        if schema is None:
            schema = self._schema = cast("Schema", plain_schema(self.model.model_json_schema()))
        return schema

    def check(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the validated arguments; raise InvalidArguments with every fault."""
        validate = self._validate
        if validate is None:
            validate = self._compile()
        try:
            return validate(raw, strict=strict)
        except self._invalid as error:
            raise InvalidArguments(model_faults(error, self.model)) from None

    def is_slow(self, raw: object) -> bool:
        """True the first time: building the validator imports pydantic."""
        return self._validate is None

    def _compile(self) -> Callable[..., Any]:
        """Look up the validator once; the class method would look it up for every call."""
        from pydantic_core import ValidationError

        self.model.model_rebuild()
        self._invalid = ValidationError
        self._validate = self.model.__pydantic_validator__.validate_python
        return self._validate

    def problems(self) -> list[str]:
        """Return the faults of the schema itself."""
        try:
            self.schema()
        except Exception as problem:  # a model may hold types that have no JSON Schema; pydantic raises many kinds
            return [f"the schema of {self.model.__name__} cannot be made: {problem}"]
        return []


class RecordArguments(Arguments):
    """Arguments described by a `Record`, as the built-in tools have them."""

    __slots__ = ("_schema", "record")

    def __init__(self, record: type[Record]) -> None:
        self.record = record
        self._schema: Schema | None = None

    def schema(self) -> Schema:
        """Return the JSON Schema of the arguments."""
        schema = self._schema
        if schema is None:
            schema = self._schema = cast("Schema", plain_schema(self.record.pydantic_model().model_json_schema()))
            properties = cast("dict[str, Schema]", schema.get("properties", {}))
            schema["properties"] = {name: _without_null(each) for name, each in properties.items()}
        return schema

    def check(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the validated arguments; raise InvalidArguments with every fault."""
        try:
            parsed = self.record.parse(raw, strict=strict)
        except ValueError as error:  # pydantic's ValidationError is one; importing it is what records avoid
            if not hasattr(error, "errors"):
                raise
            raise InvalidArguments(model_faults(error, self.record.pydantic_model())) from None
        if faults := [Fault(path, message) for path, message in parsed.faults()]:
            raise InvalidArguments(faults)
        return parsed

    def check_at_once(self, raw: Mapping[str, Any]) -> Any | None:
        """Return the validated arguments; None if pydantic would have to be imported to decide or to explain."""
        parsed = self.record.parse_plain(raw)
        return None if parsed is None or any(parsed.faults()) else parsed

    def problems(self) -> list[str]:
        """Return the faults of the schema itself."""
        return ModelArguments(self.record.pydantic_model()).problems()


class FunctionArguments(Arguments):
    """Arguments described by a function's signature, type hints and docstring; the model is built on first use."""

    __slots__ = ("_model", "_pairs", "context_parameter", "function", "hidden", "names")

    def __init__(self, function: Callable[..., Any], hidden: type, names: Mapping[str, Any] | None = None) -> None:
        self.function = function
        self.hidden = hidden
        self.names = names
        """Local names that the type hints of a nested function may refer to."""
        self.context_parameter: str | None = None
        self._model: ModelArguments | None = None
        self._pairs: tuple[tuple[str, str], ...] = ()

    @property
    def model(self) -> ModelArguments:
        """The pydantic model made from the signature."""
        if self._model is None:
            built = self._build()
            self._pairs = tuple((info.alias or name, name) for name, info in built.model_fields.items())
            self._model = ModelArguments(built)
        return self._model

    def schema(self) -> Schema:
        """Return the JSON Schema of the arguments."""
        return self.model.schema()

    def check(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the validated arguments; raise InvalidArguments with every fault."""
        return (self._model or self.model).check(raw, strict=strict)

    def is_slow(self, raw: object) -> bool:
        """True the first time: building the model imports pydantic."""
        return self._model is None or self._model.is_slow(raw)

    def problems(self) -> list[str]:
        """Return the faults of the schema itself."""
        try:
            # Most signatures are plainly valid; building the model costs a thousand times the rest.
            return [] if self._model is None and self._is_plain() else self.model.problems()
        except Exception as problem:  # anything a signature or its hints raise is a fault of the definition
            return [f"the signature of {self.function.__name__} cannot be read: {problem}"]

    def _is_plain(self) -> bool:
        """Whether every parameter has a type that certainly has a schema."""
        import inspect

        hints = typing.get_type_hints(self.function, localns=dict(self.names) if self.names else None)
        return all(
            parameter.kind is not parameter.VAR_POSITIONAL
            and (is_context(hint := hints.get(name, Any), self.hidden) or _surely_has_schema(hint))
            for name, parameter in inspect.signature(self.function).parameters.items()
        )

    def _build(self) -> type[BaseModel]:
        import inspect

        from pydantic import BaseModel, ConfigDict, create_model
        from pydantic.fields import FieldInfo

        from surehand.core.docstrings import parameter_texts  # lazy: docstrings, 3 ms

        described = parameter_texts(inspect.getdoc(self.function) or "")
        names = dict(self.names) if self.names else None
        hints = typing.get_type_hints(self.function, localns=names, include_extras=True)
        fields: dict[str, Any] = {}
        open_ended = False
        for name, parameter in inspect.signature(self.function).parameters.items():
            hint = hints.get(name, Any)
            if is_context(hint, self.hidden):
                self.context_parameter = name
                continue
            if parameter.kind is parameter.VAR_POSITIONAL:
                raise TypeError(f"*{name} cannot be described to a model; name each parameter")
            if parameter.kind is parameter.VAR_KEYWORD:
                open_ended = True
                continue
            hint = with_pydantic_fields(hint)
            default = ... if parameter.default is parameter.empty else parameter.default
            default = default.to_pydantic() if isinstance(default, Spec) else default
            info = FieldInfo.from_annotated_attribute(hint, default)
            if info.description is None and name in described:
                info.description = described[name]
            # Names that pydantic reserves (`schema`, `_x`) become aliases of another field name.
            field_name = (
                name if not name.startswith("_") and not hasattr(BaseModel, name) else f"argument_{name.lstrip('_')}"
            )
            if field_name != name:
                info.alias = info.validation_alias = info.serialization_alias = name
            fields[field_name] = (info.annotation, info)  # `info` holds the hint's own validators
        config = ConfigDict(frozen=True, extra="allow" if open_ended else "forbid", arbitrary_types_allowed=True)
        return create_model(self.function.__name__, __config__=config, **fields)

    def keywords(self, args: BaseModel) -> dict[str, Any]:
        """Return the validated arguments as the function's keyword arguments."""
        fields = args.__dict__
        values = {parameter: fields[name] for parameter, name in self._pairs}
        return values | args.model_extra if args.model_extra else values


_PLAIN_TYPES: Final[frozenset[object]] = frozenset({str, int, float, bool, type(None), Any, list, dict})
_PLAIN_ORIGINS: Final[frozenset[object]] = frozenset({list, dict, tuple, set, typing.Union, types.UnionType})


def _surely_has_schema(hint: object) -> bool:
    if hint in _PLAIN_TYPES or typing.get_origin(hint) is typing.Literal:
        return True
    inner = typing.get_args(hint)
    return typing.get_origin(hint) in _PLAIN_ORIGINS and all(each is ... or _surely_has_schema(each) for each in inner)


class ForeignArguments(Arguments):
    """Arguments described by raw JSON Schema (2020-12 unless it says otherwise), validated all the same."""

    __slots__ = ("_brief", "_checks", "_schema", "_validator", "_work")

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = cast("Schema", schema)
        self._validator: Any = None
        self._brief: Any = None
        """A validator with a low backtracking limit for patterns; None if no pattern backtracks."""
        self._work: SchemaWork | None = None
        self._checks = 0
        """Maximum number of checks for one value; 1 for a plain schema, which is not measured."""

    def is_slow(self, raw: object) -> bool:
        """Whether validating these values may be slow, so that it is done in a thread."""
        if not self._checks:
            self._measure()
        return self._checks > CHECKS_AT_ONCE or self._multiplies or may_exceed(self._checks, raw, MOMENT)

    @property
    def _multiplies(self) -> bool:
        return self._work is not None and (self._work.refers_to_itself or self._work.multiplies)

    def schema(self) -> Schema:
        """Return the JSON Schema of the arguments."""
        return self._schema

    def fits(self, value: Any) -> bool:
        """Tell whether a value fits; raise InvalidArguments for one that would take too long to check."""
        return self._choose_validator(value).is_valid(value)

    def _choose_validator(self, value: Any) -> Any:
        validator = self._validator
        if validator is None:
            validator = self._compile()
        may = self._multiplies or (self._checks > 1 and may_exceed(self._checks, value, VALUE_CHECKS_LIMIT))
        if not (may and (self._work or SchemaWork(self._schema)).exceeds(value, VALUE_CHECKS_LIMIT)):
            return validator
        few = SchemaWork(self._schema, backtracks=FEW_BACKTRACKS)
        if self._brief is None or few.exceeds(value, VALUE_CHECKS_LIMIT):
            steps = f"checking them takes more than {VALUE_CHECKS_LIMIT:,} steps; send less at a time"
            raise InvalidArguments([Fault("", steps)])
        return self._brief

    def check(self, raw: Mapping[str, Any], *, strict: bool = True) -> Any:
        """Return the arguments; raise InvalidArguments with every fault, or with the first if listing all is slow."""
        validator = self._choose_validator(raw)
        if validator.is_valid(raw):
            return raw
        # Listing all faults of `anyOf` and its kin takes a thousand times as long as finding that nothing matches.
        branches = SchemaWork(self._schema, choices=False)
        if not branches.exceeds(raw, CHECKS_AT_ONCE) and not SchemaWork(self._schema).exceeds(raw, MOMENT):
            with suppress(ValueError):  # nested too deeply; the first fault is reported below
                errors = (self._brief or validator).iter_errors(raw)
                raise InvalidArguments(_tell_faults(islice(errors, FAULTS_LIMIT)))
        if survey(self._schema).words & _ALTERNATIVES:
            raise InvalidArguments(
                [Fault("", "they do not fit, and the schema has too many alternatives to say where")]
            )
        raise InvalidArguments(_first_fault(validator, raw))

    def problems(self) -> list[str]:
        """Return the faults of the schema itself."""
        schema = self._schema
        if type(schema) is dict and schema.get("type", "object") == "object" and _plainly_valid(schema):
            return []  # a fast path: most schemas
        return schema_problems(schema)

    def _compile(self) -> Any:
        seen = survey(self._schema)
        if found := limit_faults(self._schema, seen):
            raise unusable_schema("; ".join(found))
        if not self._checks:
            self._measure()
        self._validator, self._brief = _build_validators(self._schema, seen.patterns)
        if self._brief is not None:
            self._work = SchemaWork(self._schema, backtracks=BACKTRACKS_LIMIT)
            self._checks = self._work.checks()
        return self._validator

    def _measure(self) -> None:
        if _plainly_valid(self._schema):
            self._checks = 1
            return
        self._work = SchemaWork(self._schema)
        self._checks = self._work.checks()


def _tell_faults(errors: typing.Iterable[Any]) -> list[Fault]:
    return [Fault(path_text(error.instance_path), truncate_text(str(error.message))) for error in errors]


def _first_fault(validator: Any, value: Any) -> list[Fault]:
    try:
        validator.validate(value)
    except ValueError as error:  # jsonschema_rs's own error, or nesting too deep for it
        return _tell_faults([error]) if hasattr(error, "instance_path") else [Fault("", str(error))]
    return []


def schema_validator(schema: Mapping[str, Any]) -> Any:
    """Build a validator; raise ToolFailure for an invalid schema. Remote references are never fetched."""
    return _build_validators(schema, survey(schema).patterns)[0]


def _build_validators(schema: Mapping[str, Any], patterns: Sequence[str]) -> tuple[Any, Any]:
    try:
        return build_validators(schema, patterns)
    except ValueError as problem:
        raise unusable_schema(f"not valid JSON Schema: {truncate_text(str(problem))}") from None


def unusable_schema(why: str) -> ToolFailure:
    """Return the failure of a call to a tool whose schema cannot be used."""
    return ToolFailure(
        f"the tool's input schema cannot be used: {why}",
        code="tool_unavailable",
        hint="Ask whoever provides this tool to fix its schema.",
    )


CHECKS_AT_ONCE: Final = 500
"""Checks per value made on the event loop, with all faults listed; more run in a thread."""
MOMENT: Final = 20_000
"""Checks of all values together made on the event loop; about a millisecond."""
_ALTERNATIVES: Final = frozenset({"anyOf", "oneOf", "not", "if"})
FAULTS_LIMIT: Final = 100
JSON_TYPES: Final = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
# Keywords whose plain forms are checked here; a schema with any other gets the full check.
_PLAIN_KEYS: Final = frozenset({"type", "description", "title", "default", "examples", "$schema"})
_LOOKED_INTO: Final = frozenset({"pattern", "patternProperties", "$schema"})


def schema_problems(schema: object, what: str = "input schema") -> list[str]:
    """Return every fault of a raw schema, or an empty list."""
    if type(schema) is not dict and not isinstance(schema, Mapping):
        return [f"{what} must be an object, not {type(schema).__name__}"]
    schema = cast("Mapping[str, Any]", schema)
    found: list[str] = []
    if what == "input schema" and schema.get("type", "object") != "object":
        found.append(f"{what} must have type 'object', not {schema['type']!r}")
    if _plainly_valid(schema):
        return found
    seen = survey(schema)
    if large := limit_faults(schema, seen):
        return found + [f"{what}: {fault}" for fault in large]
    if seen.references:
        found += [f"{what}: {each} leads nowhere" for each in SchemaWork(schema).dangling(seen.references)]
    import jsonschema_rs

    # Checking validity is cheap; listing all faults, and compiling patterns, takes twenty times as long.
    if not found and not seen.words & _LOOKED_INTO and jsonschema_rs.meta.is_valid(dict(schema)):
        return []
    faults = _metaschema_faults(schema, every=seen.parts <= CHECKS_AT_ONCE)
    found += [f"{what} is not valid JSON Schema: {fault}" for fault in faults]
    if not found:
        try:
            schema_validator(schema)
        except ToolFailure as problem:
            found.append(problem.message)
    return found


def _metaschema_faults(schema: Mapping[str, Any], *, every: bool) -> list[str]:
    """Return the faults by the schema's draft; only the first unless `every`, which is slow for a large schema."""
    named = schema.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    validator = _metaschema(named.rstrip("#")) if isinstance(named, str) else None
    if validator is None:
        return [f"$schema names {truncate_text(str(named), 80)}, which is not a known draft"]
    if not every:
        return list(map(str, _first_fault(validator, dict(schema))))
    return list(map(str, _tell_faults(islice(validator.iter_errors(dict(schema)), FAULTS_LIMIT))))


@cache
def _metaschema(uri: str) -> Any:
    """Return the validator of a draft's metaschema; None for an unknown draft."""
    import jsonschema_rs

    drafts = {
        "https://json-schema.org/draft/2020-12/schema": jsonschema_rs.Draft202012Validator,
        "https://json-schema.org/draft/2019-09/schema": jsonschema_rs.Draft201909Validator,
        "http://json-schema.org/draft-07/schema": jsonschema_rs.Draft7Validator,
        "http://json-schema.org/draft-06/schema": jsonschema_rs.Draft6Validator,
        "http://json-schema.org/draft-04/schema": jsonschema_rs.Draft4Validator,
    }
    uri = uri if uri in drafts else uri.replace("https:", "http:", 1)
    return drafts[uri]({"$ref": uri}, validate_formats=True) if uri in drafts else None


def _plainly_valid(schema: Mapping[str, Any]) -> bool:
    """Whether a schema is certainly valid: most tools' schemas are simple enough to tell without the full check."""
    for key, value in schema.items():
        if key == "properties":
            if type(value) is not dict:
                return False
            for each in cast("dict[str, Any]", value).values():
                if type(each) is not dict or not _plain_property(cast("Schema", each)):
                    return False
        elif key == "required":
            if type(value) is not list or len(names := cast("list[Any]", value)) > CHECKS_AT_ONCE:
                return False
            if not all(type(name) is str for name in names):
                return False
        elif key == "additionalProperties":
            if type(value) is not bool:
                return False
        elif key == "type":
            continue
        elif key not in _PLAIN_KEYS or (key != "default" and key != "examples" and type(value) is not str):
            return False
    return True


def _plain_property(schema: Schema) -> bool:
    for key, value in schema.items():
        if key == "type":
            if type(value) is not str or value not in JSON_TYPES:
                return False
        elif key == "default":
            continue
        elif key not in ("description", "title") or type(value) is not str:
            return False
    return True


def model_faults(error: Any, model: type[BaseModel]) -> list[Fault]:
    """Convert pydantic's errors to faults, with a suggestion for an unknown argument."""
    faults: list[Fault] = []
    for each in error.errors(include_url=False, include_context=False):
        path = path_text([part for part in each["loc"] if not _is_union_tag(part)])
        message = str(each["msg"])
        if each["type"] == "missing":
            message = "required, but missing"
        elif each["type"] == "extra_forbidden":
            known = [info.alias or name for name, info in model.model_fields.items()]
            message = "unknown argument" + did_you_mean(str(each["loc"][-1]), known)
        elif each["type"] != "value_error":
            message = f"{message} (got {truncate_text(repr(each['input']), 80)})"
        faults.append(Fault(path, message))
    return faults


def _is_union_tag(part: object) -> bool:
    # pydantic names the branch of a union in the location, such as "list[str]" or "function-after[...]".
    return isinstance(part, str) and ("[" in part or part in ("str", "int", "float", "bool", "dict", "constrained-str"))


def path_text(parts: typing.Iterable[object]) -> str:
    """Format a location: `edits[0].old_string`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def truncate_text(text: str, limit: int = 300) -> str:
    """Truncate a text to `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def is_context(hint: Any, hidden: type) -> bool:
    """Whether a parameter's type hint is the injected context (plain, optional or annotated)."""
    if hint is hidden:
        return True
    return any(is_context(each, hidden) for each in typing.get_args(hint)) if typing.get_origin(hint) else False


def _without_null(schema: Schema) -> Schema:
    """Drop `null` from the schema of an optional argument: models omit it instead. A null is still accepted."""
    kinds = cast("list[Schema]", schema.get("anyOf", []))
    if len(kinds) != 2 or kinds[1] != {"type": "null"} or schema.get("default", 0) is not None:
        return schema
    return {**kinds[0], **{key: value for key, value in schema.items() if key not in ("anyOf", "default")}}


def plain_schema(schema: Any) -> Any:
    """Drop the titles that pydantic generates: every token of a schema costs."""
    if isinstance(schema, list):
        return [plain_schema(each) for each in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    plain: Schema = {}
    for key, value in cast("Schema", schema).items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs", "patternProperties") and isinstance(value, dict):
            plain[key] = {name: plain_schema(each) for name, each in cast("Schema", value).items()}
        elif key in ("default", "const", "enum", "examples"):
            plain[key] = value
        else:
            plain[key] = plain_schema(value)
    return plain
