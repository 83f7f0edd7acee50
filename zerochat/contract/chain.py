"""The contract on a chain of its own: compiled from its source, and run by py-evm in this process.

A chain here is one process's own: no network, no miners, time as it is told. It shows what the contract does and what
that costs; on a public chain the same bytes would do the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from eth.chains.base import MiningChain
from eth.db.atomic import AtomicDB
from eth.vm.forks.prague import PragueVM
from eth_abi import decode, encode
from eth_keys import keys
from vyper import compile_code

from zerochat.contract.suite import SECP256K1

SOURCE: Final = Path(__file__).with_name("judge.vy")
GAS_MAX: Final = 10_000_000
"""Of one transaction."""
BLOCK_GAS: Final = 1_000_000_000
GAS_PRICE: Final = 10**9
WEALTH: Final = 10**24
FORMS: Final = ("bytecode", "method_identifiers")


class Reverted(Exception):
    """The contract has refused; the text says why."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a transaction has returned, and its gas."""

    output: bytes
    gas: int

    def as_bytes32(self) -> bytes:
        return self.output[:32]

    def as_number(self) -> int:
        return int.from_bytes(self.output[:32], "big")


@cache
def compiled() -> dict[str, Any]:
    """The contract's bytes and the names of its functions; it takes a second or two."""
    return dict(compile_code(SOURCE.read_text(encoding="utf-8"), output_formats=list(FORMS), contract_path=str(SOURCE)))


@cache
def _functions() -> dict[str, tuple[bytes, list[str]]]:
    """By name: the four bytes that call a function, and the types of what it takes."""
    found = {}
    for form, selector in compiled()["method_identifiers"].items():
        name, _, types = form.rstrip(")").partition("(")
        found[name] = bytes.fromhex(selector[2:].rjust(8, "0")), types.split(",") if types else []
    return found


def address_of(seed: bytes) -> bytes:
    """20 bytes."""
    return SECP256K1.public(seed)[12:]


class Chain:
    """A chain on which these (32-byte seeds) have all the money that they need, from `time_s` (UTC seconds) on."""

    def __init__(self, seeds: Iterable[bytes], time_s: int) -> None:
        account = {"balance": WEALTH, "nonce": 0, "code": b"", "storage": dict[int, int]()}
        genesis = {"timestamp": time_s - 1, "gas_limit": BLOCK_GAS, "difficulty": 0, "nonce": bytes(8)}
        kind = MiningChain.configure("Alone", vm_configuration=((0, PragueVM),), chain_id=1337)
        self._chain: Any = kind.from_genesis(AtomicDB(), genesis, {address_of(seed): account for seed in seeds})
        self._chain.set_header_timestamp(time_s)
        self.time_s = time_s
        self.contract = b""

    def at(self, time_s: int) -> None:
        """Go on to a later second: what was sent so far is a block now."""
        assert time_s >= self.time_s, "time goes on"
        if time_s > self.time_s:
            self._chain.mine_block()
            self._chain.set_header_timestamp(time_s)
            self.time_s = time_s

    def deploy(self, seed: bytes, ack_ms: int, skew_ms: int, window_ms: int) -> int:
        """Put the contract there. Returns its gas."""
        code = bytes.fromhex(compiled()["bytecode"][2:])
        arguments = encode(["uint256"] * 3, [ack_ms, skew_ms, window_ms])
        gas, computation = self._apply(seed, b"", code + arguments)
        computation.raise_if_error()
        self.contract = computation.msg.storage_address
        return gas

    def send(self, seed: bytes, function: str, *arguments: Any) -> Done:
        """Call a function of the contract in a transaction of this seed's. Raises Reverted."""
        selector, types = _functions()[function]
        gas, computation = self._apply(seed, self.contract, selector + encode(types, arguments))
        if computation.is_error:
            raise Reverted(_reason(bytes(computation.output)))
        return Done(bytes(computation.output), gas)

    def _apply(self, seed: bytes, to: bytes, data: bytes) -> tuple[int, Any]:
        vm = self._chain.get_vm()
        unsigned = vm.create_unsigned_transaction(
            nonce=vm.state.get_nonce(address_of(seed)), gas_price=GAS_PRICE, gas=GAS_MAX, to=to, value=0, data=data
        )
        signed = unsigned.as_signed_transaction(keys.PrivateKey(seed), chain_id=self._chain.chain_id)
        before = self._chain.header.gas_used
        _, receipt, computation = self._chain.apply_transaction(signed)
        return receipt.gas_used - before, computation


def _reason(output: bytes) -> str:
    """What stands in `Error(string)`; nothing where the contract said nothing."""
    return str(decode(["string"], output[4:])[0]) if output[:4] == bytes.fromhex("08c379a0") else ""
