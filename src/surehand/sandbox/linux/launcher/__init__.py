"""The launcher: a small long-lived process that starts commands for a session.

    program ──control──> launcher ──> supervisor (PID 1 of the call) ──> the command and all it starts

The launcher enters the session's namespaces once and keeps one supervisor ready ahead of time, so that a call pays for
neither. A supervisor serves one call at a time: it starts the command, waits, ends whatever is left, and reports.
Killing it ends every process of the call, whatever it did to hide (`setsid`, double fork).

These modules run as `python -I -S` and import almost nothing; the program's side of the talk is
`surehand.sandbox.linux.client`.
"""
