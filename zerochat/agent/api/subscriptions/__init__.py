"""The stream: what faces are told of the log and besides it, and what a bot must not miss.

tables      its tables in the journal
store       happenings, consumers and idempotency keys, as the journal has them
happenings  what the core tells the faces, as happenings
consumers   named ones, each with its durable cursor: what is told to them, and what they acknowledge
followers   everybody else who has subscribed: each with a cursor into the log, as long as it is connected
keys        what was asked under an idempotency key is done once
"""
