"""A fuzzer of work: what the messages of one hostile party cost an agent or a mediator.

Random sequences of valid messages of every kind, at the rates that the receiver permits, in virtual time. The machine
under test is the real core with the real journal, or the real mediator with its store.

    meters           counted work: signatures, key agreements, SQLite instructions, bytes written and sent, CPU time
    machine          an agent without sockets: step, commit, journal reads, timers
    scene            a group that is built once, and the keys of its hostile member
    kinds            the table of message kinds
    member_kinds     what a member can send
    ring_kinds       what a member can send in a group on the ring
    tlog_kinds       what a member can send about signed streams and a transparency log
    outsider_kinds   what an inviter, the holder of an invitation and a stranger can send
    mediator_kinds   what a user of a mediator and a sender of forwards can send
    search           sequences, the report, and the bounds
"""
