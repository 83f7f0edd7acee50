"""Mediator: stores messages for recipients that are offline, and relays messages to other addresses.

limits              resource limits
tables store        recipients, their DIDs and stored envelopes, in one encrypted SQLite file
shared_mailboxes    shared mailboxes, for which one post is enough
room                shares of the stored bytes, and eviction
usage               accounting of stored messages and work
registry            names of a DID in forwards, and its relay address
pairwise_dids       the mediator's DID for each recipient, and its keys
sessions            client connections, and the admission policy
protocol_handlers   coordinate-mediation and pickup
batches             pickup 1.0
v1_recipients       DID Exchange with recipients of DIDComm v1
core, outcomes      the mediator without sockets and clock
mixing              other mediators for detours
upstream            the mediator in front of this one, if any
identity            DID, invitation and port, created once
loop                event loop: web thread, group commits, timers
"""
