"""A grammar-based, coverage-guided fuzzer for every parser of untrusted bytes.

Texts of our own writers are taken apart, mutated and reassembled.

    nodes       a text as a tree: JSON, base64url, tokens and DIDs in each other; only changed parts are rewritten
    mutations   the changes to a tree, and to the bytes after it
    targets     the parsers (in texts, messages, envelopes, group, mediators, evidence, proofs, wire, basics, local and
                files), each with its seeds, its repair of checksums, tags and signatures after a change, and its
                invariants for accepted input
    branches    branch coverage of our code
    run         executions, their CPU time and memory, findings, and learning from new branches
    corpora     minimal sets of learned cases
    work/       valid messages, and what they cost
    doors       raw TCP connections to libzmq behind sockets as an agent binds them

Coverage comes from marks compiled into our own code (`branches.py`). They slow an execution by a fifth to a half, where
line tracing (`sys.settrace`) takes three to four times as long. Atheris (libFuzzer for Python) was measured beside it:
with this mutator it is as fast; with its own it is two to ten times as fast and reaches a tenth to a fifth less code.
"""
