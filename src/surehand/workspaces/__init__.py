"""Workspaces by content: snapshots, the pieces they consist of, and patches between them."""
