"""A Ray cluster of two nodes on this machine, for all tests of this folder.

They run where there is no network but loopback (`make test-cluster`): Ray would dial the machine's interface.
"""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def only_loopback() -> bool:
    return {name for _, name in socket.if_nameindex()} == {"lo"}


HAS_RAY = importlib.util.find_spec("ray") is not None
collect_ignore = [] if HAS_RAY and only_loopback() else ["test_commands.py", "test_failures.py", "test_fleet.py"]

CPUS = 4
STORE = 80 << 20


def patiently(start: Callable[[], Any]) -> Any:
    """Start a part of Ray again if it gave up, as it does after half a minute on a busy machine."""
    for left in (2, 1, 0):
        try:
            return start()
        except Exception:
            if not left:
                raise
    return None


class Nodes:
    """Two or more nodes that a test may kill."""

    def __init__(self) -> None:
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        from ray.cluster_utils import Cluster

        common: dict[str, Any] = {"num_cpus": CPUS, "node_ip_address": "127.0.0.1", "object_store_memory": STORE}
        self._common = common | {"include_log_monitor": False}
        head = {**self._common, "include_dashboard": False, "labels": {"zone": "a"}}
        self.cluster: Any = patiently(lambda: Cluster(initialize_head=True, head_node_args=head))
        self.address = self.cluster.address
        self.second = self.add(zone="b")

    def add(self, env_vars: dict[str, str] | None = None, **labels: str) -> Any:
        more = {"env_vars": env_vars} if env_vars else {}
        return patiently(lambda: self.cluster.add_node(**self._common, labels=labels, **more))

    def kill(self, node: Any) -> None:
        """Kill a node at once."""
        self.cluster.remove_node(node, allow_graceful=False)

    def renew(self) -> None:
        """Add nodes until there are two."""
        if len(self.cluster.list_all_nodes()) < 2:
            self.second = self.add(zone="b")


@pytest.fixture(scope="session")
def _cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    home = tmp_path_factory.mktemp("node-home")
    before = dict(os.environ)
    os.environ |= {"HOME": str(home), "SUREHAND_HOME": str(home / "surehand")}
    made = Nodes()
    os.environ.clear()
    os.environ.update(before)
    yield made
    made.cluster.shutdown()


@pytest.fixture
def nodes(_cluster: Nodes) -> Nodes:
    _cluster.renew()
    return _cluster


@pytest.fixture
def work(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "sub" / "b.txt").write_text("b\n")
    (root / ".env").write_text("PASSWORD=hunter2\n")
    (root / ".gitignore").write_text("*.log\n")
    (root / "noise.log").write_text("noise\n")
    return root
