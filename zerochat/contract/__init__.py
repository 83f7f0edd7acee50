"""The judge and its ledger as a contract for an Ethereum machine, for groups that have one (README.md beside this).

    judge.vy  the contract
    suite     secp256k1, as a suite of `evidence`
    chain     the contract compiled, on a chain in this process

Needs the extra `evm`. Nothing in zerochat imports this room.
"""
