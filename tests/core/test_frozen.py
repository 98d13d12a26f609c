"""Frozen records behave as the standard library's frozen dataclasses do."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from surehand.core.frozen import field, frozen, names_of, replace_values

T = TypeVar("T")


@frozen
class Point:
    """A place."""

    dimensions: ClassVar[int] = 2
    x: int
    y: int = 0
    tags: list[str] = field(default_factory=list[str])


@frozen
class Nothing:
    """No fields at all."""


@frozen(kw_only=True, eq=False)
class Shape:
    name: str
    corners: tuple[Point, ...] = ()
    measure: Callable[[str], int] = field(default=len)
    size: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.corners))


@frozen(kw_only=True, eq=False)
class Marked(Shape, Generic[T]):
    mark: T


def test_fields_are_taken_by_position_and_by_name_with_defaults() -> None:
    assert (Point(1).y, Point(1, 2).y, Point(x=1, y=3).y) == (0, 2, 3)


def test_the_first_objects_of_a_class_are_made_like_all_that_follow() -> None:
    @frozen
    class Fresh(Point):
        note: str = field(default="", repr=False)

    made = [Fresh(1, tags=["a"]) for _ in range(20)]  # `__init__` is compiled on the way
    assert len(set(map(repr, made))) == 1
    assert all(each == made[0] and each.note == "" for each in made)
    assert Fresh(1).tags is not Fresh(1).tags


@pytest.mark.parametrize("wrong", [lambda: Point(), lambda: Point(1, 2, [], 4), lambda: Point(1, z=3)])  # type: ignore[call-arg]
def test_wrong_arguments_are_refused(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        wrong()
    with pytest.raises(TypeError):  # and again, once `__init__` is compiled
        wrong()


def test_every_object_gets_a_value_of_its_own_from_a_factory() -> None:
    assert Point(1).tags is not Point(1).tags


def test_records_are_equal_by_value_and_only_to_their_own_kind() -> None:
    assert Point(1, 2) == Point(1, 2) != Point(2, 1)
    assert Nothing() == Nothing()
    assert Point(1) != (1, 0, [])
    assert Shape(name="a") != Shape(name="a")


def test_the_hash_follows_the_values() -> None:
    @frozen
    class Name:
        first: str
        last: str = ""

    assert hash(Name("a", "b")) == hash(Name("a", "b")) != hash(Name("b", "a"))
    assert {Nothing(), Nothing()} == {Nothing()}


def test_nothing_can_be_set_or_deleted() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.other = 2  # type: ignore[attr-defined]
    assert not hasattr(point, "__dict__")


def test_the_text_names_every_field_that_is_shown() -> None:
    assert repr(Point(1, tags=["a"])) == "Point(x=1, y=0, tags=['a'])"
    assert "size" not in repr(Shape(name="a"))


def test_patterns_match_by_position() -> None:
    match Point(3, 4):
        case Point(x, y):
            assert (x, y) == (3, 4)
    assert Shape.__match_args__ == ()  # type: ignore[attr-defined]


def test_a_record_can_extend_another() -> None:
    marked = Marked[str](name="a", mark="b", corners=(Point(1),))
    assert (marked.size, marked.mark, marked.measure("abcd")) == (1, "b", 4)
    assert names_of(marked) == names_of(Marked) == ("name", "corners", "measure", "size", "mark")


def test_copies_and_pickles_are_equal() -> None:
    point = Point(1, 2, ["a"])
    assert point == copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point))


def test_a_copy_can_differ_in_some_values() -> None:
    assert replace_values(Point(1, 2), y=5) == Point(1, 5)
    assert replace_values(Marked(name="a", mark=1), corners=(Point(1),)).size == 1
    with pytest.raises(TypeError):
        replace_values(Point(1), z=3)


def test_the_tools_of_the_standard_library_work() -> None:
    assert is_dataclass(Point)
    assert replace(Point(1, 2), y=5) == Point(1, 5)
    assert replace(Marked(name="a", mark=1), corners=(Point(1),)).size == 1
    assert asdict(Point(1)) == {"x": 1, "y": 0, "tags": []}
    assert [each.name for each in fields(Point)] == ["x", "y", "tags"]


def test_a_dataclass_can_extend_a_record() -> None:
    @dataclass(frozen=True)
    class Place(Point):
        name: str = ""

    assert Place(1, name="a") == Place(1, 0, [], "a")
    assert Place(1).y == 0
