"""Overlay routing: the ring of large groups; peer sampling and clustering for channels.

An overlay selects neighbours and hops by name; it sees neither keys nor content.

    ring        who is linked to whom
    forwarding  where a member sends a message, and which messages it has seen
    repair      anti-entropy by pull
    routing     the next hop of a message for one member
    ack_sets    which members have which chains, merged along the links

A group's view is its sample of members. Only a channel, whose readers are not listed, needs more:

    cyclon          descriptors of peers and their exchange
    stream_sampler  a uniform sample of a biased stream
    local_trust     how much a peer counts
    peer_sampling   the three of them as one state machine
    blip            filters that show subscriptions with noise
    clustering      the most similar peers
    fingers         some dissimilar ones
    join_routing    the way of a join to a subscriber
"""
