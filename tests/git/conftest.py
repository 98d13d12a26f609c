"""Both ways to contain a program, for tests that try each."""

from __future__ import annotations

import pytest

from surehand.core.frozen import replace_values
from surehand.sandbox.linux import probe


@pytest.fixture(params=["namespaces", "landlock alone"])
def sandbox(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the way that is in force."""
    here = probe.abilities()
    if request.param == "namespaces" and not here.private_view:
        pytest.skip("no namespaces here")
    if request.param == "landlock alone":
        if not (here.landlock and here.seccomp):
            pytest.skip("no Landlock here")
        monkeypatch.setattr(probe, "abilities", lambda: replace_values(here, private_view=False))
    return request.param
