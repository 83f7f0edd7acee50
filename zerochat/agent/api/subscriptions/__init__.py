"""Subscriptions: durable cursors for named consumers, live subscribers, and idempotency keys.

tables         the tables in the journal
store          durable notifications, consumers and idempotency keys in the journal
notifications  the core's notifications as durable notifications
consumers      named consumers with durable cursors: delivery, credit and acknowledgement
live           subscribers without a name, with a cursor for as long as they are connected
idempotency    requests with an idempotency key are carried out once
hub            all of it, as the request handlers use it
"""
