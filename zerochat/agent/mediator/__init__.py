"""A mediator: it takes messages in for others, keeps them until they are fetched, and passes on what goes further.

limits      what anybody may let grow
store       recipients, their DIDs, and the envelopes that wait: one encrypted SQLite file
registry    which names a DID goes by, and whether its messages wait here or go elsewhere
mediator    what is heard and what is said, without any socket
relay       what goes on to somebody's own address: when, and how often it is tried again
service     the loop around it: the web thread, group commits, the clock
"""
