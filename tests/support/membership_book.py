"""Membership events built by hand."""

import random

import pytest

from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.didcomm.endpoint import Endpoint
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, LABEL, LEAVE, REMOVE, ROLE, VOTE, Event
from zerochat.group.links.contact import Reach, new_identity, sign_consent, sign_possession, transport_public
from zerochat.group.membership import Policy, check_all, check_control, heads_of, resolve_view

CONTACT = new_identity(
    random.Random(1).randbytes, Reach(bytes(31) + b"\x09", Endpoint("10.0.0.1", 7000), Endpoint("10.0.0.1", 7001)), "v2"
).did

FLAT, ADMINS = Policy.default(), Policy.default("admins")

ANYONE = Policy(remove="anyone", quorum=0)
RULED_ANYONE = Policy(remove="anyone", quorum=0, roles="admins")
LETTERS = "abcdefg"


def seed(name):
    return sha256(name.encode())


def did(name):
    return did_key(ed25519_public(seed(name)))


class Book:
    """The membership events of one group; everybody is called by the first letters of the alphabet."""

    def __init__(self, policy=FLAT, founder="a", members="", body=None):
        rules = {
            "name": "friends",
            "keys": "pairwise-multi",
            "path": "mesh",
            "accountability": "acks",
            "nonce": "x",
            "label": founder,
            "contact": CONTACT,
            "envelope": "didcomm/v2",
            "policy": policy.body(),
            "transport": transport_public(seed(founder)),
            "possession": sign_possession(seed(founder), "", did(founder)),
        }
        genesis = Event("", GENESIS, did(founder), 1, "", (), (), 1, 1, {**rules, **(body or {})}).signed(seed(founder))
        check_control(genesis, {})
        self.control = {genesis.id: genesis}
        self.id = genesis.id
        self.seqs = {founder: 1}
        for one in members:
            self.add(founder, one)

    @property
    def view(self):
        return resolve_view(self.control)

    @property
    def names(self):
        return "".join(sorted(one for one in "abcdefghij" if did(one) in self.view.members))

    def make(self, author, kind, body, seen=None, seq=0, lamport=0):
        """An event by somebody who has seen everything, or these events and what was before them."""
        deps = heads_of(self.control) if seen is None else tuple(sorted(event.id for event in seen))
        latest = max((self.control[dep].lamport for dep in deps), default=0)
        seq = seq or self.seqs.get(author, 0) + 1
        pre = "" if seq == 1 else "p" * 43
        self.seqs[author] = max(seq, self.seqs.get(author, 0))
        stamp = lamport or latest + 1
        return Event(self.id, kind, did(author), seq, pre, deps, (), stamp, 1, body).signed(seed(author))

    def say(self, author, kind, body, seen=None, **place):
        event = self.make(author, kind, body, seen, **place)
        check_control(event, self.control)
        self.control[event.id] = event
        return event

    def addition(self, adder, one, label=None, role="writer", **changes):
        label = label or one
        transport = transport_public(seed(one))
        body = {
            "member": did(one),
            "label": label,
            "contact": CONTACT,
            "role": role,
            "transport": transport,
            "possession": sign_possession(seed(one), self.id, did(one)),
            "consent": sign_consent(
                seed(one), self.id, did(adder), did(one), label, CONTACT, role, changes.get("transport", transport)
            ),
        }
        return {**body, **changes}

    def add(self, adder, one, seen=None, **changes):
        return self.say(adder, ADD, self.addition(adder, one, **changes), seen)

    def remove(self, author, one, seen=None, after=9):
        return self.say(author, REMOVE, {"member": did(one), "after": after}, seen)

    def vote(self, author, one, seen=None):
        return self.say(author, VOTE, {"member": did(one)}, seen)

    def role(self, author, one, role, seen=None, after=None):
        after = self.seqs.get(author, 0) + 1 if after is None else after
        return self.say(author, ROLE, {"member": did(one), "role": role, "after": after}, seen)

    def label(self, author, label, seen=None):
        return self.say(author, LABEL, {"label": label}, seen)

    def leave(self, author, seen=None):
        return self.say(author, LEAVE, {}, seen)

    def heads(self):
        return [self.control[name] for name in heads_of(self.control)]

    def refuses(self, author, kind, body, seen=None):
        event = self.make(author, kind, body, seen)
        with pytest.raises(Refused):
            check_control(event, self.control)
        with pytest.raises(Refused):
            check_all([*self.control.values(), event])


def ruled(policy=ADMINS):
    """Owner a, admins b and c, writers d and e, and f, whom an admin made a reader."""
    book = Book(policy, members="bcdef")
    book.role("a", "b", "admin", after=0)
    book.role("a", "c", "admin", after=0)
    book.role("b", "f", "reader", after=4)
    return book
