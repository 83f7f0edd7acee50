"""Spark pipeline over exported telemetry, with a report and a notebook.

A separate program (`zerochat-analytics`). The chat never imports it; from the chat it uses only error classes, text
sanitising and shell completion.
"""
