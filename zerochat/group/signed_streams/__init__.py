"""Signed streams: posts in a group with sender keys (`key_modes/sender_key.py`), after SUPRA.

    publisher      our own stream: its messages, its keys, its subscribers
    statements     signed statements about subscriptions that we send in every `sync`
    subscriptions  signed statements about subscriptions that a member sends
    receiver       messages of other members' streams, in order
    messages       decrypting a message; rejected messages, kept as evidence of withholding

Below it is the event log of every group: a stream message carries some events of its author, and the log orders,
acknowledges and retransmits these. So there is one chain of hashes for the history, which every member has, and one
chain of signatures for proofs, between an author and its subscribers.

A member requests each other member's stream, gets an answer with the key and the position where it begins, and confirms
that: three signed statements (`evidence/handshake.py`). They travel in `sync`, which is repeated anyway, so there are
no timers here. A member that cannot decrypt a message because it has lost a key requests the stream again, and gets the
earlier events separately.
"""
