"""From raw arguments to checked ones: repair what plainly means one thing, otherwise say everything that is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from surehand.core.call import BROKEN_ARGUMENTS, ToolCall
from surehand.core.errors import ToolFailure
from surehand.core.repair import repair
from surehand.core.sample import sample
from surehand.core.schema import Fault, InvalidArguments
from surehand.core.tool import Tool


def repair_arguments(tool: Tool, call: ToolCall) -> tuple[Any, tuple[str, ...]]:
    """Return checked arguments and a receipt of repairs; raise `invalid_args` with every fault."""
    refused: list[Fault] = []
    try:
        given, renamed = _rename(tool, call.args)
        raw, notes, refused = repair(given, tool.arguments.schema())
        notes = [*renamed, *notes]
        parsed = tool.arguments.check(raw, strict=False)
    except InvalidArguments as problem:
        known = {fault.path for fault in problem.faults}
        raise invalid(tool, [*problem.faults, *(each for each in refused if each.path not in known)]) from None
    except (TypeError, ValueError, AttributeError) as problem:
        raise invalid(tool, [Fault("", f"arguments must be an object: {problem}")]) from None
    if refused:
        raise invalid(tool, refused)
    return parsed, tuple(notes)


def _rename(tool: Tool, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """Return arguments under the tool's own names where its class of arguments knows the other ones, and a receipt."""
    names: Mapping[str, str] = getattr(tool.args, "synonyms", {})
    values: Mapping[str, Mapping[str, str]] = getattr(tool.args, "value_synonyms", {})
    if not names and not values:
        return given, []
    found, notes = dict(given), list[str]()
    for other, own in names.items():
        if other in found and own not in found:
            found[own] = found.pop(other)
            notes.append(f"{other} was read as {own}")
    for own, words in values.items():
        said = found.get(own)
        if isinstance(said, str) and (meant := words.get(said.lower())) is not None:
            found[own] = meant
            notes.append(f"{own}: {said!r} was read as {meant!r}")
    return found, notes


def broken(tool: Tool, call: ToolCall) -> ToolFailure:
    """Return the failure of a call whose arguments a model wrote in no JSON."""
    shown = str(call.args[BROKEN_ARGUMENTS])[:200]
    message = f"the arguments of {tool.name} are not JSON: {shown}"
    return ToolFailure(message, code="invalid_args", hint="Send one JSON object.")


def invalid(tool: Tool, faults: list[Fault]) -> ToolFailure:
    """Return the failure that lists every fault with its path, and an example that would do."""
    listed = "; ".join(map(str, faults[:20])) + (f"; and {len(faults) - 20} more" if len(faults) > 20 else "")
    example = _example(tool)
    shown = f", for example with {json.dumps(example, ensure_ascii=False)}" if example is not None else "."
    return ToolFailure(
        f"invalid arguments for {tool.name}: {listed}",
        code="invalid_args",
        hint=f"Correct them and call again{shown}",
        details={"faults": [{"path": fault.path, "message": fault.message} for fault in faults]},
    )


def _example(tool: Tool) -> Mapping[str, Any] | None:
    """Return arguments that the tool would take; none rather than wrong ones."""
    for example in (*tool.examples[:1], sample(tool.arguments.schema())):
        try:
            tool.arguments.check(example, strict=False)
        except Exception:  # a schema can ask for anything; an example is only offered where one is sure
            continue
        return example
    return None
