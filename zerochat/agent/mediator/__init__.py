"""A mediator: it takes messages in for others, keeps them until they are fetched, and passes on what goes further.

limits          what anybody may let grow
rows store      recipients, their DIDs, and the envelopes that wait: one encrypted SQLite file
registry        which names a DID goes by, and whether its messages wait here or go elsewhere
pairwise        under which DID each recipient is spoken to, and the keys of all of them
session clerk   a connection, and what its recipient is answered
mediator        what is heard and what is said, without any socket
mixing          how other mediators come to let our detours through
upstream        the mediator that this one is behind, if any
standing        the DID, the invitation and the port, made once
service         the loop around all of it: the web thread, group commits, the clock
"""
