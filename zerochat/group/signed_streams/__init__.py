"""Streams: what is said in a group whose keys sign (`key_modes/sender_key.py`), as SUPRA has it.

    own.py          our stream: every message that we say in it, its keys, and who hears it
    terms.py        what we say to a member about subscriptions, in every `sync`
    subscribing.py  what a member says about them
    taking.py       the messages of another member's stream, one behind the other
    strays.py       what has come and is not taken in, for whoever has to show what was withheld
    reading.py      what stands in a message, for whoever has its key

Below it is the event log of every group: a message of a stream brings some events of its author's, and the log puts
these in order, acknowledges and repairs them. So there is one chain of hashes for what is known, which everybody has,
and one of signatures for what can be proven, between an author and whoever hears it.

A member asks to hear each other one's stream, is answered with the key and the place where it begins, and confirms
that: three signed statements (`evidence/handshake.py`). They ride on `sync`, which is said again and again, so nothing
here has timers of its own. Whoever cannot read a message any more, because it has lost a key, asks anew, and gets by
itself what was said before the answer.
"""
