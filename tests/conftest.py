"""What every test shares: a state folder of its own, so that no test reads or writes the user's."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from tests.providers.model_stub import Stub

# How long an example takes depends on who else uses the machine; what is to be fast is measured elsewhere.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell starts what it puts into the background with Ctrl-C ignored, and every child of the tests would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give what is slow an hour: its work is bounded by counts, and how long that takes depends on the machine."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(3600))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what tests have counted (`record_property("counted", {...})`), the sums of all of them."""
    totals: Counter[str] = Counter()
    for report in [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]:
        for name, value in report.user_properties:
            if name == "counted" and report.when == "call":
                totals.update(cast("dict[str, int]", value))
    if totals:
        terminalreporter.write_sep("=", f"counted: {totals.total()}")
        for what, count in sorted(totals.items()):
            terminalreporter.write_line(f"{what:32} {count:7}")


@pytest.fixture(autouse=True)
def _own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point SUREHAND_HOME (and HOME) at a scratch folder, and drop every key of the real environment."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SUREHAND_HOME", str(home / "surehand"))
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_TOKEN")) or (name.startswith("SUREHAND_") and name != "SUREHAND_HOME"):
            monkeypatch.delenv(name)
    return home


@pytest.fixture
def stub() -> Iterator[Stub]:
    """A model's server on loopback that says what a script says."""
    made = Stub()
    yield made
    made.close()


pytest_plugins = ["surehand.testing"]
