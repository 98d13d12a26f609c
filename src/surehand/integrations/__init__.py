"""Integrations of Surehand's tools in other frameworks: a file and an extra each, imported only on use.

from surehand.integrations.pydantic_ai import surehand_toolset
"""
