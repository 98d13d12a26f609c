"""The launcher: a small long-lived process that starts commands for a session.

    client ──control──> launcher ──> supervisor (PID 1 of the call) ──> the command and all it starts

The launcher enters the session's namespaces once and starts supervisors ahead of time, so that no call pays for
either. A supervisor serves one call at a time: it starts the command, waits, kills what is left, and reports. Killing
it ends every process of the call, also those that called `setsid` or forked twice.

These modules run under `python -I -S` and import almost nothing. The client is `surehand.sandbox.linux.client`.
"""
