"""`WebSearch`: results of the configured search engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from surehand.core.call import ToolResult
from surehand.core.effects import Connect
from surehand.core.errors import ToolFailure
from surehand.core.record import Args, Field
from surehand.core.tool import Tool
from surehand.tools import list_schema, object_schema, prompt
from surehand.web.addresses import read_url
from surehand.web.fetch import Reach, refuse_secrets, system_resolve
from surehand.web.search_engines import Engine, Found, choose, search

if TYPE_CHECKING:
    from surehand.core.context import ToolContext
    from surehand.core.effects import Effect
    from surehand.core.settings import WebSettings
    from surehand.web.fetch import Resolve

RESULTS: Final = 10
MAX_RESULTS: Final = 50
TIMEOUT_S: Final = 30.0
SNIPPET_CHARS: Final = 1_000


class WebSearchArgs(Args):
    """The query, and the number of results."""

    query: str = Field(min_length=1, max_length=2_000, description="The search query")
    max_results: int = Field(default=RESULTS, ge=1, description="Maximum number of results to return (default 10)")


def web_search(choose: Callable[[WebSettings], Engine] = choose, resolve: Resolve | None = None) -> Tool:
    """Create the tool; tests replace how an engine is chosen and how hosts are resolved."""

    def effects(args: WebSearchArgs, ctx: ToolContext) -> list[Effect]:
        try:
            engine = choose(ctx.session.settings.web)
        except ToolFailure:
            return []  # no engine is configured, which the call itself reports
        address = read_url(engine.ask(args.query, args.max_results, 0).shown)
        return [Connect(address.host, address.port, address.url)]

    def check(args: WebSearchArgs, ctx: ToolContext) -> None:
        del ctx
        refuse_secrets(args.query)

    async def run(args: WebSearchArgs, ctx: ToolContext) -> ToolResult:
        web = ctx.session.settings.web
        engine = choose(web)
        query = " ".join(args.query.split())
        if not query:
            raise ToolFailure("the query is empty", code="invalid_args", hint="Say what to search for.")
        reach = Reach(web.allowed_hosts, web.proxy, resolve or system_resolve)
        found = await search(engine, query, min(args.max_results, MAX_RESULTS), reach, TIMEOUT_S)
        return _result(query, engine.name, found)

    return Tool(
        name="WebSearch",
        kind="fetch",
        output_schema=object_schema({"query": "string", "backend": "string", "results": list_schema("object")}),
        description=prompt("web_search"),
        args=WebSearchArgs,
        run=run,
        read_only=True,
        concurrency_safe=True,
        examples=({"query": "python asyncio timeout"}, {"query": "site:docs.python.org openat", "max_results": 5}),
        origin="web",
        timeout_s=3 * TIMEOUT_S + 5,
        effects=effects,
        check=check,
    )


def _result(query: str, engine: str, found: list[Found]) -> ToolResult:
    data = {"query": query, "backend": engine, "results": [each.to_dict() for each in found]}
    lines = [_format_results(number, each) for number, each in enumerate(found, 1)]
    output = "\n\n".join(lines) or f"No results for {query!r} ({engine}). Try other or fewer words."
    return ToolResult(data=data, output=output, meta={"origin": "web"})


def _format_results(number: int, found: Found) -> str:
    snippet = found.snippet if len(found.snippet) <= SNIPPET_CHARS else found.snippet[:SNIPPET_CHARS] + "..."
    lines = [f"{number}. {found.title or '(no title)'}", found.url, snippet, f"source: {found.source}"]
    return "\n   ".join(line for line in lines if line)


TOOLS: Final[tuple[Tool, ...]] = (web_search(),)
