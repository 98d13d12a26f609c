"""Cutting what is too long, so that both ends stay: the beginning has the structure, the end the summary."""

from __future__ import annotations


def cut(text: str, limit: int) -> str:
    """Return at most about `limit` characters: 80% from the head, 20% from the tail, and a note of what is gone."""
    if len(text) <= limit:
        return text
    head = limit * 4 // 5
    tail = limit - head
    return f"{text[:head]}\n... {len(text) - limit:,} characters left out ...\n{text[-tail:]}"
