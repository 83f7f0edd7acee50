"""Fixtures of the bot tests."""

from tests.support.agents import people

__all__ = ["people"]
