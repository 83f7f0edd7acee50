"""Decentralised continuous group key agreement (DCGKA, Weidner et al. 2021): group keys that heal, without a server.

Every member has a *key ratchet* that all others follow, and sends its messages in *epochs* that its key events begin.
An *update* is a fresh seed for all members, over the pairwise channels (`crypto/two_party.py`). Each member *adopts*
the update before its next message, which refreshes its own ratchet as well: one update heals all members, and a removal
costs one message for each remaining member. The order of concurrent events does not matter, since every secret has a
member of its own and the views come from the membership events (`membership/`).

Differences from the paper: key events are apart from membership events, and only name their heads. An update replaces
its author's ratchet instead of being mixed in, so it also helps a member that has lost track. A newcomer is given the
author's ratchet (the paper's welcome and add-ack), as are all other members that an adoption leaves behind: members
that the author of the update did not know, and those whose removal has become void. A newcomer's first event is an
update. The rule of `production.py` decides when else one comes first.

    key_event     the signed record and its direct messages      key_schedule    derivations
    state         what a member keeps                            member_secrets  those of an update, erased one by one
    reception     the events of others                           production      our own events
    complaint     proof against a forged seed                    message_keys    the keys of messages
    wire          events and direct messages as bytes            channel_reset   channels with members not met
    erasure       keys whose time is over                        export          secrets for uses beside messages
"""
