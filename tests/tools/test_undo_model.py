"""Undo and redo by change, turn, session, file and number, against a model of the tree kept in memory."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.tools.workbench import Workbench, failure

NAMES = ("a.txt", "b.txt", "dir/c.txt", "dir/deep/d.txt", "__pycache__/m.pyc")
Tree = dict[str, str]


@dataclass
class Made:
    """A change as the model remembers it: whose it is, and what each of its files was and became."""

    id: str
    session: str
    turn: str
    files: dict[str, tuple[str | None, str | None]]
    order: int
    undone: frozenset[str] = frozenset()

    def standing(self) -> dict[str, tuple[str | None, str | None]]:
        return {name: each for name, each in self.files.items() if name not in self.undone}


class Model:
    """What the tree holds, and every change with what of it is taken back; no code of the history."""

    def __init__(self) -> None:
        self.tree: Tree = {}
        self.made: list[Made] = []
        self.order = 0

    def record(self, id: str, session: str, turn: str, files: dict[str, tuple[str | None, str | None]]) -> None:
        self.order += 1
        self.made.append(Made(id, session, turn, files, self.order))
        self.put({name: after for name, (_, after) in files.items()})

    def put(self, wanted: dict[str, str | None]) -> None:
        for name, text in wanted.items():
            if text is None:
                self.tree.pop(name, None)
            else:
                self.tree[name] = text

    def latest(self, session: str, kept: Any, most: int | None = None) -> list[Made]:
        """Return what stands of a session and is wanted, the latest first; what one redo brought back counts as one."""
        found = [each for each in self.made if each.session == session and any(map(kept, each.standing()))]
        found.sort(key=lambda each: (each.order, int(each.id)), reverse=True)
        orders = list(dict.fromkeys(each.order for each in found))[:most]
        return [each for each in found if each.order in orders]

    def plan(self, chosen: list[Made], kept: Any) -> dict[str, tuple[str | None, str | None]] | None:
        """Return per path what must stand there and what shall; None where somebody changed it in between or since."""
        steps: dict[str, tuple[str | None, str | None]] = {}
        for each in chosen:
            for name, (before, after) in each.standing().items():
                if kept(name):
                    if name in steps and steps[name][1] != after:
                        return None
                    steps[name] = (steps[name][0] if name in steps else after, before)
        wrong = [name for name, step in steps.items() if self.tree.get(name) not in step]
        return None if wrong else steps


def people_keep(name: str) -> bool:
    return "__pycache__" not in name


class Fuzz:
    """Does the same to two sessions over one folder and to the model, and compares the tree after every step."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.benches = {name: Workbench(folder, name=name) for name in ("one", "two")}
        self.root = folder / "ws"
        self.model = Model()
        self.counts: Counter[str] = Counter()
        self.undone: dict[str, list[tuple[list[tuple[Made, frozenset[str]]], dict[str, tuple[Any, Any]]]]] = {
            name: [] for name in self.benches
        }

    def run(self, steps: int) -> None:
        for _ in range(steps):
            name = self.random.choice(list(self.benches))
            action = self.random.choices([self.change, self.undo, self.redo, self.begin_turn], weights=[5, 4, 3, 1])[0]
            action(name, self.benches[name])
            found = {str(p.relative_to(self.root)): p.read_text() for p in self.root.rglob("*") if p.is_file()}
            assert found == self.model.tree, action.__name__
        for bench in self.benches.values():
            bench.history.close()

    def begin_turn(self, session: str, bench: Workbench) -> None:
        if bench.session.turn and self.random.random() < 0.3:
            bench.session.end_turn()
        else:
            bench.session.begin_turn()

    def change(self, session: str, bench: Workbench) -> None:
        name, text = self.random.choice(NAMES), f"{self.random.randrange(1000)}\n"
        before = self.model.tree.get(name)
        if before == text:
            return
        if before is not None:
            bench.read(name)
        result = bench.write(name, text)
        assert result.undo is not None
        change = bench.history.change(result.undo.change_id)
        assert change is not None
        self.model.record(result.undo.change_id, session, change.turn, {name: (before, text)})
        self.counts["change"] += 1

    def undo(self, session: str, bench: Workbench) -> None:
        kept, args, chosen = self._wish(session, bench)
        steps = self.model.plan(chosen, kept)
        if not self._call(bench, "Undo", bool(chosen) and steps is not None, args):
            return
        assert steps is not None
        taken = [(each, frozenset(filter(kept, each.standing()))) for each in chosen]
        for each, names in taken:
            each.undone |= names
        actual = {name: (was if self.model.tree.get(name) == shall else self.model.tree.get(name), shall)
                  for name, (was, shall) in steps.items()}  # fmt: skip
        self.model.put({name: shall for name, (_, shall) in steps.items()})
        self.undone[session].append((taken, actual))
        self.counts[f"undo {next(iter(args), 'last')}"] += 1

    def _call(self, bench: Workbench, tool: str, possible: bool, args: dict[str, Any]) -> bool:
        """Make a call that the model says is possible or not; return whether it was made."""
        if possible:
            bench.call(tool, **args)
        else:
            failure(lambda: bench.call(tool, **args))
            self.counts["refused"] += 1
        return possible

    def _wish(self, session: str, bench: Workbench) -> tuple[Any, dict[str, Any], list[Made]]:
        """Return which files are meant, the arguments that say so, and the changes the model says they mean."""
        everything = lambda name: True  # noqa: E731
        unit = self.random.choice(["", "", "last", "turns", "session", "file", "change_id", "all"])
        if unit == "file":
            name = self.random.choice(NAMES)
            return name.__eq__, {"file": name}, self.model.latest(session, name.__eq__, 1)
        if unit == "change_id":
            standing = [each for each in self.model.made if each.standing()]
            if not standing:
                return people_keep, {}, self.model.latest(session, people_keep, 1)
            one = self.random.choice(standing)
            return everything, {"change_id": one.id}, [one]
        kept = everything if unit == "all" else people_keep
        latest = self.model.latest(session, kept)
        if unit == "last":
            return kept, {"last": 2}, self.model.latest(session, kept, 2)
        if unit == "session":
            return kept, {"session": session}, latest
        if unit == "turns":
            return kept, {"turns": ["last"]}, [each for each in latest if each.turn == latest[0].turn]
        return kept, {"all": True} if unit == "all" else {}, self.model.latest(session, kept, 1)

    def redo(self, session: str, bench: Workbench) -> None:
        latest = self.undone[session][-1:]
        possible = all(self.model.tree.get(name) in step for _, steps in latest for name, step in steps.items())
        if not self._call(bench, "Redo", bool(latest) and possible, {}):
            return
        taken, steps = self.undone[session].pop()
        self.model.order += 1
        for each, names in taken:
            each.undone -= names
            each.order = self.model.order
        self.model.put({name: was for name, (was, _) in steps.items()})
        self.counts["redo"] += 1


@pytest.mark.parametrize("seed", range(5))
def test_undo_and_redo_do_what_the_model_does(tmp_path: Path, seed: int) -> None:
    fuzz = Fuzz(tmp_path, seed)
    fuzz.run(100)
    assert fuzz.counts["redo"] > 3, fuzz.counts


def test_a_folder_that_two_standing_changes_made_is_no_conflict(tmp_path: Path) -> None:
    fuzz = Fuzz(tmp_path, seed=119)  # found by the long run
    fuzz.run(120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_undo_and_redo_do_what_the_model_does_for_long(tmp_path: Path, seed: int) -> None:
    Fuzz(tmp_path, seed).run(500)
