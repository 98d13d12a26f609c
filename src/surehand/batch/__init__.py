"""Batches: many tasks, each in a workspace of its own, with one result line each that survives any crash."""
