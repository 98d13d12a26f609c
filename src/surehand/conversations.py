"""Conversations with a model over an application: the agent loop, its sub-agents, and the way back to earlier turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from surehand.agent import profiles
from surehand.agent.loop import Limits, Loop
from surehand.agent.prompt import system_prompt
from surehand.agent.rewind import SessionRewinder
from surehand.agent.subagents import Subagents
from surehand.engine.journal import MemoryJournal
from surehand.models import choose, open_model
from surehand.tools.tasks import BOARD

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.core.model import Model


def loop(
    app: Surehand,
    model: Model,
    *,
    system: str | None,
    limits: Limits | None,
    with_tools: bool,
    on_text: Callable[[str], None] | None,
) -> Loop:
    """Return the loop over an application's session, going on where its journal ends."""
    system = system or system_prompt(app.session)
    if with_tools:
        app.session.agents = subagents(app, model, limits, system)
        app.layers.reuse_results()
        app.executor.forget_all()
    made = Loop(
        model,
        app.executor,
        app.session,
        app.selection if with_tools else None,
        system=system,
        limits=limits,
        transcript=rewinder(app).transcript(),
        on_text=on_text,
    )
    rewinder(app).conversations.add(made)
    return made


def subagents(app: Surehand, model: Model, limits: Limits | None, system: str) -> Subagents:
    """Return who runs the sub-agents of a conversation: with its profiles, and its model unless a profile names one."""
    known, problems = profiles.load(app.session.workspace, trusted=app.trusted)
    for problem in problems:
        app.session.emit("note", message=f"a sub-agent's profile was left out: {problem}")
    settings = app.settings
    return Subagents(
        executor=app.executor,
        session=app.session,
        selection=app.selection,
        open_model=lambda name: open_model(settings, choose(settings, name)) if name else model,
        profiles=known,
        board=BOARD,
        limits=limits,
        system=system,
    )


def rewinder(app: Surehand) -> SessionRewinder:
    """Return who brings an application's session back to earlier turns, made on first use."""
    session = app.session
    if isinstance(session.rewinder, SessionRewinder):
        return session.rewinder
    journal = app.journal
    if journal is None:  # nothing is kept on disk: the turns are remembered for as long as the session lives
        journal = MemoryJournal(session.id)
        app.bus.subscribe(journal)
    session.rewinder = SessionRewinder(
        session,
        call=app.call,
        dry_run=app.dry_run,
        records=journal.records,
        hold_alone=journal.hold_alone,
        start_branch=journal.start_branch,
        board=BOARD,
    )
    return session.rewinder
