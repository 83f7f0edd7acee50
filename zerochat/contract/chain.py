"""In-process Ethereum chain (py-evm) with the compiled contract.

No network and no miners; time is a parameter. It shows the contract's behaviour and gas, which are the same on a public
chain.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

_recursion_limit = sys.getrecursionlimit()

from eth.chains.base import MiningChain  # noqa: E402
from eth.db.atomic import AtomicDB  # noqa: E402
from eth.vm.forks.prague import PragueVM  # noqa: E402
from eth_abi import decode, encode  # noqa: E402
from eth_keys import keys  # noqa: E402
from vyper import compile_code  # noqa: E402

from zerochat.contract.suite import SECP256K1  # noqa: E402

# py-evm raises the limit for the whole process, beyond what the stack holds: decoders that rely on it would crash on
# deeply nested input instead of refusing it. The contract needs no such depth.
sys.setrecursionlimit(_recursion_limit)

SOURCE: Final = Path(__file__).with_name("judge.vy")
GAS_MAX: Final = 10_000_000
"""Gas limit of a transaction."""
BLOCK_GAS: Final = 1_000_000_000
GAS_PRICE: Final = 10**9
WEALTH: Final = 10**24
FORMS: Final = ("bytecode", "method_identifiers")


class Reverted(Exception):
    """The contract reverted; the text is its reason."""


@dataclass(frozen=True, slots=True)
class Done:
    """Output and gas of a transaction."""

    output: bytes
    gas: int

    def as_bytes32(self) -> bytes:
        return self.output[:32]

    def as_number(self) -> int:
        return int.from_bytes(self.output[:32], "big")


@cache
def compiled() -> dict[str, Any]:
    """The compiled contract: bytecode and function selectors. Takes a second or two."""
    return dict(compile_code(SOURCE.read_text(encoding="utf-8"), output_formats=list(FORMS), contract_path=str(SOURCE)))


@cache
def _functions() -> dict[str, tuple[bytes, list[str]]]:
    """Selector (4 bytes) and argument types of each function, by name."""
    found = {}
    for form, selector in compiled()["method_identifiers"].items():
        name, _, types = form.rstrip(")").partition("(")
        found[name] = bytes.fromhex(selector[2:].rjust(8, "0")), types.split(",") if types else []
    return found


def address_of(seed: bytes) -> bytes:
    """The address of a seed, 20 bytes."""
    return SECP256K1.public(seed)[12:]


class Chain:
    """A chain with funded accounts for these seeds (32 bytes each), starting at `time_s` (UTC seconds)."""

    def __init__(self, seeds: Iterable[bytes], time_s: int) -> None:
        account = {"balance": WEALTH, "nonce": 0, "code": b"", "storage": dict[int, int]()}
        genesis = {"timestamp": time_s - 1, "gas_limit": BLOCK_GAS, "difficulty": 0, "nonce": bytes(8)}
        kind = MiningChain.configure("Alone", vm_configuration=((0, PragueVM),), chain_id=1337)
        self._chain: Any = kind.from_genesis(AtomicDB(), genesis, {address_of(seed): account for seed in seeds})
        self._chain.set_header_timestamp(time_s)
        self.time_s = time_s
        self.contract = b""

    def at(self, time_s: int) -> None:
        """Advance the time; pending transactions become a block."""
        assert time_s >= self.time_s, "time goes on"
        if time_s > self.time_s:
            self._chain.mine_block()
            self._chain.set_header_timestamp(time_s)
            self.time_s = time_s

    def deploy(self, seed: bytes, ack_ms: int, skew_ms: int, window_ms: int) -> int:
        """Deploy the contract; return the gas."""
        code = bytes.fromhex(compiled()["bytecode"][2:])
        arguments = encode(["uint256"] * 3, [ack_ms, skew_ms, window_ms])
        gas, computation = self._apply(seed, b"", code + arguments)
        computation.raise_if_error()
        self.contract = computation.msg.storage_address
        return gas

    def send(self, seed: bytes, function: str, *arguments: Any) -> Done:
        """Call a contract function in a transaction signed with the seed. Raises Reverted."""
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
    """The message of `Error(string)`; empty: none."""
    return str(decode(["string"], output[4:])[0]) if output[:4] == bytes.fromhex("08c379a0") else ""
