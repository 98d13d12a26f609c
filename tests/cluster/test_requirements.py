"""What is refused before Ray is asked for anything; these need no Ray."""

from __future__ import annotations

from typing import Any

import pytest

from surehand.cluster.ray_api import Needs, check_versions, own_versions
from surehand.core.errors import SettingsError, StateError


@pytest.mark.parametrize(("name", "version"), [("surehand", "0.0.1"), ("python", "3.9")])
def test_another_version_of_package_or_python_is_refused_with_both_versions(name: str, version: str) -> None:
    own = own_versions()
    check_versions("node-1", own)
    with pytest.raises(StateError) as problem:
        check_versions("node-1", {**own, name: version})
    assert f"the node node-1 has {name} {version}, and this process has {own[name]}" in str(problem.value)


def test_needs_are_cores_and_memory() -> None:
    assert Needs.parse({"cpu": 0.5, "memory": "1GiB"}).bundle == {"CPU": 0.5, "memory": float(1 << 30)}
    assert Needs.parse(None).bundle == {}


@pytest.mark.parametrize("wrong", [{"gpu": 1}, {"cpu": -1}, {"cpu": "two"}, {"cpu": True}, {"memory": "much"}])
def test_needs_that_nobody_can_meet_are_refused_in_words(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        Needs.parse(wrong)
