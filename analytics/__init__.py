"""What became of messages: a Spark pipeline over exports of zerochat's telemetry, its report and its notebook.

A program of its own (`zerochat-analytics`). The chat never imports it, and it takes from the chat only what makes text
safe to show and what errors look like.
"""
