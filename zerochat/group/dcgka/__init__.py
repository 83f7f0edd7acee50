"""DCGKA in a group: keys that heal for its messages, without a server (`key_agreement/` has the algorithm).

    membership      the view at the membership events that a key event names
    channels        pre-keys in every `sync`; beginning the channel of two members anew
    publisher       our key events before our messages, on their way to each member; sealing messages
    receiver        key events and messages of others, in order
    forwarding      on the ring, messages go from neighbour to neighbour
    routing         on the ring, items for one member go from hop to hop
    ring_channels   on the ring, our key events, direct messages, acknowledgements and resets
    ring_receiver   on the ring, those of others

A key event travels to each member by itself, with the direct message for it, again until its `sync` acknowledges it.
Messages travel once for all. What a member cannot open it still gets: its author retransmits what is not acknowledged
in the pairwise relationship, as in every group. On the ring, where most members have no relationship, key events are
flooded, direct messages and acknowledgements are routed, and messages come from any member.
"""
