"""Delivery telemetry: opt-in records of message delivery, kept on this machine and never sent (README.md).

Only `switch` is imported while telemetry is off; the rest by the recorder and by requests about telemetry.
"""
