"""What anybody can check without having been there: signed messages in a chain, who has acknowledged them, a log that
nobody can rewrite, and the judge who goes by these alone. Pure, as everything below the agent is.

    merkle     the tree of a log: roots, and proofs that an entry is in it (RFC 6962)
    note       texts with signatures below them, and checkpoints of a log (C2SP)
    witness    who signs only what it holds, and when something was there at the latest
    operator   who makes a log of what is posted
    reader     who goes by what is in it
    suite      by which signatures all this goes
    messages   what publishers and subscribers sign: data, shares of keys, overwrites, acknowledgements (SUPRA)
    handshake  how a subscription begins and ends
    case       an accusation and what is said against it, as one file
    judge      what follows from a case, rule by rule
"""
