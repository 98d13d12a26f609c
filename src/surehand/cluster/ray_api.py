"""All use of Ray: starting or joining a cluster, its nodes, actors, and reservations of resources."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, Final

from surehand import __version__
from surehand.core.errors import SettingsError, StateError
from surehand.core.frozen import frozen

LOOPBACK: Final = "127.0.0.1"
STORE_BYTES: Final = 80 << 20
"""Ray's object store on nodes started here; workspaces travel in smaller parts."""
_UNITS: Final = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "b": 1}


def load_ray() -> Any:
    """Import Ray with usage reporting off; raise StateError that names the extra if it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as problem:
        raise StateError(
            f"Ray is not installed ({problem}); install it with `pip install 'surehand[cluster]'`"
        ) from None


@frozen
class Needs:
    """What a session needs of a node: cores, bytes of memory, and labels the node must have."""

    cpu: float = 0.0
    memory: int = 0
    labels: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None, labels: Mapping[str, str] | None = None) -> Needs:
        """Parse `{"cpu": 0.5, "memory": "1GiB"}`; raise SettingsError for anything else."""
        given = dict(given or {})
        cpu, memory = given.pop("cpu", 0.0), given.pop("memory", 0)
        if given:
            raise SettingsError(f"a session needs cpu and memory; {sorted(given)[0]!r} is neither")
        if not isinstance(cpu, int | float) or isinstance(cpu, bool) or not 0 <= cpu < 1e5:
            raise SettingsError(f"cpu must be a number of cores, not {cpu!r}")
        wanted = tuple(sorted((labels or {}).items()))
        return cls(float(cpu), parse_size(memory), wanted)

    @property
    def bundle(self) -> dict[str, float]:
        """The resources to reserve in Ray's notation; empty if none are needed."""
        return {name: value for name, value in (("CPU", self.cpu), ("memory", float(self.memory))) if value}

    def fits(self, labels: Mapping[str, str]) -> bool:
        """True if a node with these labels qualifies."""
        return all(labels.get(key) == value for key, value in self.labels)


def parse_size(given: Any) -> int:
    """Return bytes from a number or a text such as `1GiB`."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return given
    text = str(given).strip().lower()
    for unit, size in _UNITS.items():
        if text.endswith(unit):
            try:
                return int(float(text[: -len(unit)]) * size)
            except ValueError:
                break
    raise SettingsError(f"memory must be bytes or a text such as '512MiB' or '2GiB', not {given!r}")


@frozen
class Node:
    """One node of the cluster that is alive."""

    id: str
    labels: Mapping[str, str]
    cpu: float
    memory: float


class Cluster:
    """A connection to a Ray cluster, started here or joined; `close` stops a cluster that was started here."""

    def __init__(self, address: str, nodes: int, cpus: float | None, *, namespace: str) -> None:
        self.ray = load_ray()
        self._started: Any = None
        if self.ray.is_initialized():
            raise StateError("this process is already connected to a Ray cluster; one fleet at a time")
        if "://" in address:
            raise SettingsError(
                f"{address}: join a cluster from one of its nodes, by HOST:PORT; Ray's client is not used"
            )
        try:
            if address == "local":
                address = self._start(nodes, cpus)
            elif nodes > 1:
                raise SettingsError("nodes are simulated on a local cluster only")
            own: dict[str, Any] = {"_node_ip_address": LOOPBACK} if address.startswith((LOOPBACK, "localhost")) else {}
            quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "error", "configure_logging": False}
            self.ray.init(address=address, namespace=namespace, **quiet, **own)
        except (SettingsError, StateError):
            self.close()
            raise
        except Exception as problem:  # Ray raises many kinds for a cluster that cannot be joined
            self.close()
            raise StateError(f"the Ray cluster at {address} cannot be joined: {problem}") from None

    def _start(self, nodes: int, cpus: float | None) -> str:
        """Start a cluster on this machine that is reachable on loopback only."""
        tools = importlib.import_module("ray.cluster_utils")
        cores = int(cpus or os.cpu_count() or 1)
        common = {"num_cpus": cores, "node_ip_address": LOOPBACK, "object_store_memory": STORE_BYTES}
        head = {**common, "include_dashboard": False, "dashboard_host": LOOPBACK}
        self._started = tools.Cluster(initialize_head=True, head_node_args=head)
        for _ in range(nodes - 1):
            self._started.add_node(**common)
        return str(self._started.address)

    def close(self) -> None:
        """Leave the cluster, and stop it if it was started here."""
        if self.ray.is_initialized():
            self.ray.shutdown()
        if self._started is not None:
            self._started.shutdown()
            self._started = None

    async def list_nodes(self) -> list[Node]:
        """Return the nodes that are alive."""
        rows: Sequence[Mapping[str, Any]] = await asyncio.to_thread(self.ray.nodes)
        return [
            Node(
                row["NodeID"],
                row.get("Labels") or {},
                row["Resources"].get("CPU", 0.0),
                row["Resources"].get("memory", 0.0),
            )
            for row in rows
            if row["Alive"]
        ]

    async def reserve(self, needs: Needs, *, name: str = "") -> tuple[Any, str]:
        """Wait until the cluster can reserve what a session needs; return the placement group and its node's id.

        A named reservation outlives this process.
        """
        groups = importlib.import_module("ray.util.placement_group")
        labels = [dict(needs.labels)] if needs.labels else None
        group = groups.placement_group(
            [needs.bundle], bundle_label_selector=labels, name=name, lifetime="detached" if name else None
        )
        try:
            while not await asyncio.to_thread(group.wait, 1):
                pass
            table = await asyncio.to_thread(groups.placement_group_table, group)
            return group, str(table["bundles_to_node_id"][0])
        except BaseException:
            self.release(group)
            raise

    def release(self, group: Any) -> None:
        """Release a reservation."""
        if group is not None and self.ray.is_initialized():
            importlib.import_module("ray.util.placement_group").remove_placement_group(group)

    def release_named(self, name: str) -> None:
        """Release a named reservation, which an earlier process may have made; no error if there is none."""
        groups = importlib.import_module("ray.util.placement_group")
        with contextlib.suppress(ValueError):
            groups.remove_placement_group(groups.get_placement_group(name))

    def start_actor(self, kind: type, node: str, *args: Any, name: str = "", detached: bool = False) -> Any:
        """Start an actor on a node; it ends with this process unless it is detached."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        options: dict[str, Any] = {
            "num_cpus": 0,
            "max_concurrency": 10_000,
            "max_restarts": 0,
            "scheduling_strategy": strategies.NodeAffinitySchedulingStrategy(node, soft=False),
        }
        if detached:
            options |= {"lifetime": "detached", "name": name}
        return self.ray.remote(kind).options(**options).remote(*args)

    def find_actors(self) -> list[Any]:
        """Return the named actors of this namespace."""
        names: Sequence[str] = self.ray.util.list_named_actors()
        return [self.ray.get_actor(name) for name in names]

    def kill(self, actor: Any) -> None:
        """Kill an actor's process."""
        if self.ray.is_initialized():
            self.ray.kill(actor)


def is_lost(problem: BaseException) -> bool:
    """True if an exception means that an actor or its node is gone."""
    errors = importlib.import_module("ray.exceptions")
    return isinstance(problem, errors.RayActorError | errors.NodeDiedError | errors.ActorUnschedulableError)


def own_versions() -> dict[str, str]:
    """Return the versions that must be the same on every node."""
    major, minor, _ = platform.python_version_tuple()
    return {"surehand": __version__, "python": f"{major}.{minor}"}


def check_versions(node: str, found: Mapping[str, str]) -> None:
    """Raise StateError if a node runs another version of surehand or Python than this process."""
    for name, own in own_versions().items():
        if found.get(name) != own:
            raise StateError(
                f"the node {node} has {name} {found.get(name)}, and this process has {own}; "
                "install the same on every node, then restart them"
            )
