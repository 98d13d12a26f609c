"""Ten thousand tools: registered against a plain dict, searched against BM25 over a numpy matrix."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from typing import Any

from benchmarks.harness import Harness, peers

TOOLS = 10_000
QUERIES = 100

# The anchor: scores of every word as rows of a matrix, a query is a sum of rows and a partial sort.
NUMPY = """
import json, sys
import numpy
tools, queries = json.loads(sys.stdin.readline())
vocabulary, counts = {}, []
for text in tools:
    row = {}
    for word in text.split():
        number = vocabulary.setdefault(word, len(vocabulary))
        row[number] = row.get(number, 0) + 1
    counts.append(row)
lengths = numpy.array([sum(row.values()) for row in counts], dtype=numpy.float32)
matrix = numpy.zeros((len(vocabulary), len(tools)), dtype=numpy.float32)
for position, row in enumerate(counts):
    for number, count in row.items():
        matrix[number, position] = count
found = (matrix > 0).sum(axis=1, keepdims=True)
rarity = numpy.log(1 + (len(tools) - found + 0.5) / (found + 0.5))
matrix = rarity * matrix * 2.5 / (matrix + 1.5 * (0.25 + 0.75 * lengths / lengths.mean()))
print("ready", flush=True)
for _ in sys.stdin:
    for query in queries:
        rows = [vocabulary[word] for word in query.split() if word in vocabulary]
        scores = matrix[rows].sum(axis=0)
        best = numpy.argpartition(scores, -10)[-10:]
        best[numpy.argsort(-scores[best])]
    print("done", flush=True)
"""


def made() -> tuple[list[Any], list[str]]:
    """Return tools with names and descriptions as uneven as real ones, and queries over the same words."""
    from surehand.core.tool import Tool

    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(3000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    tools = [
        Tool(
            name=f"{chance.choice(words)}_{chance.choice(words)}_{number}",
            description=" ".join(chance.choices(words, weights, k=15)),
            search_hint=" ".join(chance.choices(words, k=2)),
            run=print,
            args={"type": "object"},
        )
        for number in range(TOOLS)
    ]
    return tools, [" ".join(chance.choices(words, weights, k=3)) for _ in range(QUERIES)]


def numpy_search(tools: list[Any], queries: list[str]) -> tuple[Callable[[], object], Callable[[], object]] | None:
    """Return (search, stop) of the anchor in a process of its own; None when numpy cannot be had."""
    python = peers("numpy", ["numpy"])
    if python is None:
        return None
    child = subprocess.Popen(
        [str(python), "-c", NUMPY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    assert child.stdin is not None
    assert child.stdout is not None
    words, answers = child.stdin, child.stdout
    texts = [f"{tool.name.replace('_', ' ')} {tool.description} {tool.search_hint}" for tool in tools]
    words.write(json.dumps([texts, queries]) + "\n")
    answers.readline()

    def search() -> None:
        words.write("go\n")
        answers.readline()

    def stop() -> None:
        words.close()
        child.wait()

    return search, stop


def rows(harness: Harness) -> None:
    from surehand.registry.registry import Registry
    from surehand.registry.search import SearchIndex

    tools, queries = made()

    def plain() -> dict[str, Any]:
        return {tool.name: tool for tool in tools}

    def register() -> Registry:
        registry = Registry()
        for tool in tools:
            registry.register(tool)
        SearchIndex(registry)
        return registry

    harness.compare(
        f"register {TOOLS:,} tools, index on demand",
        [("a dict", plain), ("surehand", register)],
        goal="<= 80",
        rounds=9,
    )
    index = SearchIndex(register())
    index.names(queries[0])

    def search() -> None:
        for query in queries:
            index.names(query)

    anchor = numpy_search(tools, queries)
    if anchor is None:
        harness.compare(f"search {TOOLS:,} tools, {QUERIES} queries", [("surehand (no numpy here)", search)])
        return
    harness.compare(
        f"search {TOOLS:,} tools, {QUERIES} queries", [("numpy BM25", anchor[0]), ("surehand", search)], goal="<= 3.5"
    )
    anchor[1]()
