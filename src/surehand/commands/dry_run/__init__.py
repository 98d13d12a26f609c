"""Dry runs of commands: run on a copy of the workspace, show the difference, apply it or discard it."""
