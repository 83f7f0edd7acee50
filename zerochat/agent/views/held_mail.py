"""Mail that is held: members that only a mediator reaches, and whose mediators do not count (now)."""

import time

from zerochat import rpc
from zerochat.didcomm import PACKERS
from zerochat.group.inputs import StepContext
from zerochat.group.links import mediator_mail
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction

HELD_SHOWN = 100


def held_mail(agent: Agent) -> list[rpc.HeldMail]:
    """The members for which nothing can be posted now, and why; at most HELD_SHOWN."""
    if agent.reach is None:
        return []
    # Nothing is done with this transaction, so it needs no randomness.
    tx = Transaction(agent, StepContext(int(time.time() * 1000), bytes), PACKERS)
    found = []
    for group in agent.groups.values():
        for member, peer in group.links.peers.items() if group.state == "active" else ():
            known = group.view.members.get(member)
            if known is None or peer.link in agent.links_up:
                continue
            routes = mediator_mail.reach_of_member(group, member).routes
            if routes and mediator_mail.route_to(tx, group.id, member) is None:
                near = [one for one in routes if mediator_mail.is_near_enough(tx, group.seed, one.uri)]
                paused = near and not any(mediator_mail.is_working(tx, one.uri) for one in near)
                why: rpc.HeldWhy = "near" if not near else "failed" if paused else "unproved"
                found.append(rpc.HeldMail(group.id, known.label, (near or routes)[0].uri, why))
    return found[:HELD_SHOWN]
