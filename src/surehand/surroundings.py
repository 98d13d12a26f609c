"""What surrounds the calls of an application: who writes them down, and what the settings have done round each."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from surehand.core.errors import StateError
from surehand.core.tool import Tool
from surehand.engine.journal import Journal, resume
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.engine.audit import Audit
    from surehand.engine.bus import Bus
    from surehand.engine.executor import Executor
    from surehand.engine.extensions import Extensions
    from surehand.engine.metrics import Metrics
    from surehand.engine.middleware import Layers
    from surehand.engine.tuning import Tuner
    from surehand.registry.registry import Registry


class Surroundings:
    """Puts listeners on the bus of one application; `stack` closes them with it."""

    def __init__(self, bus: Bus, session: Session, stack: AsyncExitStack) -> None:
        self._bus = bus
        self._session = session
        self._settings = session.settings
        self._stack = stack

    def keep_journal(self, path: str) -> Journal:
        """Take a named session up where its journal ends, and write on."""
        try:
            locations.private_dir(os.path.dirname(path))
            resume(self._session, path)
            journal = Journal(path, self._session.id)
        except OSError as problem:
            message = f"the session cannot be kept in {path}: {problem.strerror}"
            raise StateError(f"{message}; let the folder be written, or name another with SUREHAND_HOME") from problem
        self._bus.subscribe(journal)
        self._stack.callback(journal.close)
        self._session.emit("session_started", workspace=self._session.workspace)
        return journal

    def keep_recording(self, path: str) -> None:
        """Write every call and its result to a file that can be replayed."""
        from surehand.engine.replay import Recorder

        recorder = Recorder(path, self._session)
        self._bus.subscribe(recorder)
        self._stack.callback(recorder.close)

    def keep_audit(self, folder: str) -> Audit:
        """Record every call and every refusal; where that fails, what changes something is refused."""
        from surehand.engine.audit import Audit

        audit = Audit(folder)
        self._bus.subscribe(audit)
        self._stack.callback(audit.close)
        return audit

    def keep_metrics(self, path: str, metrics: Metrics) -> None:
        """Add what this process measures to what others have measured in this workspace."""
        from surehand.engine.metrics_store import MetricsStore

        store = MetricsStore(path)

        def save() -> None:
            try:
                store.save(metrics.records)
            except (OSError, StateError) as problem:  # the calls are made; figures are no reason to fail them
                self._session.emit("note", message=f"what was measured is not kept: {problem}")

        self._stack.callback(save)

    def traces(self) -> Callable[..., Any] | None:
        """Return what puts each call into a trace, or None where nobody listens."""
        # Somebody who listens has imported the SDK or set its variables; otherwise nothing of it is looked at.
        if "opentelemetry.sdk" not in sys.modules and not any(name.startswith("OTEL_") for name in os.environ):
            return None
        from surehand.engine.tracing import tracing

        return tracing(self._settings)

    def hook(self, extensions: Extensions) -> None:
        """Run the shell hooks of the settings round every call."""
        for number, hook in enumerate(self._settings.hooks, 1):
            from surehand.engine.shell_hooks import ShellHook

            extensions.register(ShellHook(number, hook, self._session))

    def tuned(self, executor: Executor, metrics: Metrics, layers: Layers, registry: Registry) -> Tuner:
        """Let limits follow what is measured."""
        from surehand.engine.cache import cacheable
        from surehand.engine.tuning import EngineLimits, Tuner

        def can_cache(name: str) -> bool:
            tool = registry.card(name)
            return self._settings.engine.cache is None and isinstance(tool, Tool) and cacheable(tool)

        tuner = Tuner(
            metrics.all,
            EngineLimits(executor, self._settings),
            self._bus.emit,
            session_id=self._session.id,
            cached=layers.advised,
            can_cache=can_cache,
        )
        self._bus.subscribe(tuner)
        return tuner
