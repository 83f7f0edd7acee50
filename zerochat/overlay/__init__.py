"""Overlay routing: the ring of large groups.

An overlay selects neighbours and hops by name; it sees neither keys nor content.

    ring        who is linked to whom
    forwarding  where a member sends a message, and which messages it has seen
    repair      anti-entropy by pull
    routing     the next hop of a message for one member
    ack_sets    which members have which chains, merged along the links
"""
