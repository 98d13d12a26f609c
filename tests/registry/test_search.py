"""Finding tools: ranked over name, alias, hint and description, forgiving of typos, in any language."""

from __future__ import annotations

import random
from time import process_time

import pytest

from surehand.core.tool import Tool, ToolInfo
from surehand.registry.registry import Registry
from surehand.registry.search import SearchIndex, words


class Cards:
    """The least a search index needs."""

    def __init__(self, *infos: ToolInfo) -> None:
        self.version = 1
        self._infos = {info.name: info for info in infos}

    def cards(self) -> list[Tool | ToolInfo]:
        return list(self._infos.values())

    def add(self, info: ToolInfo) -> None:
        self._infos[info.name] = info
        self.version += 1


def info(name: str, description: str = "", hint: str = "", aliases: tuple[str, ...] = (), module: str = "") -> ToolInfo:
    return ToolInfo(
        name=name, description=description, input_schema={}, search_hint=hint, aliases=aliases, module=module
    )


TOOLS = (
    info("Bash", "Executes a shell command", "shell command execute terminal"),
    info("Read", "Reads a file from the disk", "", ("FileRead",)),
    info("Write", "Writes a file", "", ("FileWrite",)),
    info("Grep", "Searches the content of files with regular expressions"),
    info("WebFetch", "Fetches content from a URL", "http page download 网页 抓取"),
    info("WebSearch", "Searches the web", "internet 搜索 recherche web"),
    info("Gitignore", "Manages .gitignore"),
    info("TaskCreate", "Creates a task"),
    info("mcp__github__create_issue", "Open a new issue in a repository", module="github"),
    info("времяСейчас", "Показывает текущее время", "время часы"),
)


def found(query: str, limit: int = 10) -> list[str]:
    return SearchIndex(Cards(*TOOLS)).names(query, limit)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("web", "WebFetch"),
        ("WebSearch", "WebSearch"),
        ("web_search", "WebSearch"),
        ("websearch", "WebSearch"),
        ("fetch web page", "WebFetch"),
        ("FileRead", "Read"),
        ("terminal", "Bash"),
        ("regular expression", "Grep"),
        ("git", "Gitignore"),
        ("ignor", "Gitignore"),
        ("github issue", "mcp__github__create_issue"),
        ("searching files", "Grep"),
        ("creating tasks", "TaskCreate"),
        ("time", None),
        ("сейчас", "времяСейчас"),
        ("搜索", "WebSearch"),
        ("抓取网页", "WebFetch"),
        ("网", "WebFetch"),
        ("RECHERCHE", "WebSearch"),
        ("rechérche", "WebSearch"),
        ("the web", "WebFetch"),
    ],
)
def test_a_query_finds_what_it_means(query: str, first: str | None) -> None:
    assert (found(query) or [None])[0] == first


@pytest.mark.spec("REG-8")
@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("serach", "WebSearch"),
        ("fethc", "WebFetch"),
        ("terminla", "Bash"),
        ("repositry", "mcp__github__create_issue"),
        ("gitignroe", "Gitignore"),
        ("comand", "Bash"),
    ],
)
def test_typos_still_find(typo: str, meant: str) -> None:
    assert meant in found(typo)


def test_web_finds_both_web_tools_and_nothing_else() -> None:
    assert found("web") == ["WebFetch", "WebSearch"]


@pytest.mark.parametrize("query", ["", "   ", "?!", "qqqqzzzz", "\x00", "\u200b"])
def test_a_query_without_words_or_hits_finds_nothing(query: str) -> None:
    assert found(query) == []


def test_a_query_of_any_length_is_answered() -> None:
    assert "WebFetch" in found("web " * 50_000 + "fetch")


def test_the_limit_and_the_filter_hold() -> None:
    index = SearchIndex(Cards(*TOOLS))
    assert index.names("web", 1) == ["WebFetch"]
    assert index.names("web", 10, lambda name: name != "WebFetch") == ["WebSearch"]
    assert index.names("web", 0) == []


def test_the_index_follows_the_registry() -> None:
    cards = Cards(*TOOLS)
    index = SearchIndex(cards)
    assert index.names("zeppelin") == []
    cards.add(info("Zeppelin", "Flies"))
    assert index.names("zeppelin") == ["Zeppelin"]


def test_words_of_scripts_without_blanks_are_pairs_of_characters() -> None:
    assert words("抓取网页") == ["抓取", "取网", "网页", "抓", "取", "网", "页"]
    assert words("Crème Brûlée") == ["creme", "brulee"]
    assert words("ｆｕｌｌ") == ["full"]


@pytest.mark.spec("REG-8")
def test_ten_thousand_tools_are_searched_well_under_a_millisecond() -> None:
    chance = random.Random(7)
    vocabulary = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(3000)]
    weights = [1 / (rank + 1) for rank in range(3000)]
    cards = Cards(
        *(
            info(f"{chance.choice(vocabulary)}_{number}", " ".join(chance.choices(vocabulary, weights, k=15)))
            for number in range(10_000)
        )
    )
    index = SearchIndex(cards)
    index.names("warm up")
    queries = [" ".join(chance.choices(vocabulary, weights, k=3)) for _ in range(200)]
    began = process_time()
    hits = sum(bool(index.names(query)) for query in queries)
    each_ms = (process_time() - began) / len(queries) * 1000
    assert hits == len(queries)
    assert each_ms < 2.0, "a generous bound: the benchmark has the figure"


@pytest.mark.spec("REG-8")
@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("Wetter", "german"),
        ("überblick", "german"),
        ("查一下天气怎么样", "chinese"),
        ("прогноз на завтра", "russian"),
        ("天気", "japanese"),
        ("날씨를 알려줘", "korean"),
        ("الطقس", "arabic"),
    ],
)
def test_a_tool_is_found_by_a_hint_in_another_language(query: str, name: str) -> None:
    hints = {
        "german": "Wettervorhersage Überblick",
        "chinese": "天气预报 查询",
        "russian": "прогноз погоды",
        "japanese": "天気予報を調べる",
        "korean": "날씨 예보",
        "arabic": "توقعات الطقس",
    }
    registry = Registry()
    for each, hint in hints.items():
        told = Tool(
            name=each, description="Tells.", search_hint=hint, args={"type": "object"}, run=lambda args, ctx: ""
        )
        registry.register(told)
    assert SearchIndex(registry).names(query)[0] == name


def test_a_word_finds_the_same_tools_whether_looked_up_alone_or_sorted_in_with_all_others() -> None:
    chance = random.Random(11)
    stems = ("run", "query", "file", "class", "box", "stop", "cache", "story", "try", "网页", "naïve", "Fetch")
    endings = ("", "s", "es", "ing", "ned", "ies", "y", "e", "ry")

    def word() -> str:
        return chance.choice(stems) + chance.choice(endings)

    cards = Cards(*(info(f"{word()}_{word()}_{n}", f"{word()} {word()} {word()}", word()) for n in range(60)))
    worn = SearchIndex(cards)
    for _ in range(100):
        worn.names(word())
    for query in ["y", "", *(f"{word()} {word()}" for _ in range(100)), *(word()[:-1] for _ in range(50))]:
        assert SearchIndex(cards).names(query) == worn.names(query), query
