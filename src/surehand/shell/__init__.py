"""Understanding shell commands before they run: `understand(command, cwd)` is the one door."""

from __future__ import annotations

from surehand.shell.report import Redirect, ShellReport, SimpleCommand, understand

__all__ = ["Redirect", "ShellReport", "SimpleCommand", "understand"]
