"""Delivery telemetry: how messages fared, recorded on this machine for whoever has asked for it, and sent to nobody.

Nothing here is imported as long as it is off. What is recorded, and what not, is told in `README.md`.

consent     the question, the answer as it is kept, and what wins over it
rows        the kinds of facts, with types and units; `SCHEMA_VERSION`
store       facts in the profile's encrypted journal: appended in batches, bounded, the oldest gone first
recorder    from what the agent thread sees to facts
messages    what was sent and received
changes     who is in, who is connected, what was asked for, who has joined
serving     what faces ask of it at the control socket
pseudonyms  numbers in the place of everybody's names
export      facts as Parquet files in a folder of their own
"""
