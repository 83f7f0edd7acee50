"""A fuzzer for what strangers' bytes reach: texts that our own writers made are taken apart, changed, put together.

    nodes       a text as a tree: JSON, base64url, tokens and DIDs in each other; only changed parts are written anew
    mutations   what is done to a tree, and to the bytes after it
    targets     the parsers (in texts, messages, envelopes, group, mediators, evidence, proofs, wire, basics, local and
                files), each with its seeds, with what must be right again (a checksum, a tag, a signature) for a change
                to get past the first door, and with what must be so of whatever it accepts
    branches    which branches of our code an execution takes
    run         executions, their CPU time and memory, findings, and what is learned from those that lead further
    corpora     what was learned, as little of it as leads everywhere
    doors       raw TCP connections to libzmq behind sockets as an agent binds them

What guides it are marks that are compiled into our own code (`branches.py`). They make an execution slower by a fifth
to a half, where tracing lines (`sys.settrace`) makes it three to four times as slow. Atheris, which brings libFuzzer to
Python, was measured beside it: with this mutator it is as fast, with its own it is two to ten times as fast and reaches
a tenth to a fifth less of the code.
"""
