"""Offline-verifiable evidence: signed streams, witnessed transparency logs, and a pure judge (README.md)."""
