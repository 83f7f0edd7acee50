"""A fuzzer for what strangers' bytes reach: texts that our own writers made are taken apart, changed, put together.

    nodes       a text as a tree: JSON, base64url, tokens and DIDs in each other; only changed parts are written anew
    mutations   what is done to a tree, and to the bytes after it
    targets     the parsers (in texts, messages and envelopes), each with its seeds and with what must be right again
                (a checksum, a tag, a signature) for a change to get past the first door
    run         executions, their CPU time, findings, and how to have one again

There is no coverage to guide it: seeds of every shape that we write, and seals that fit, lead deep enough, and a case
costs microseconds instead of milliseconds.
"""
