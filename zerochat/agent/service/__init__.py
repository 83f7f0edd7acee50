"""The agent as a service: readiness, shutdown, hooks and the crash log."""
