"""Members that must not see our address: everything goes out through our own mediators (`network.hidden = "always"`).

Every effect of a step passes `divert`, the only place that decides it: nothing is dialled, no client is admitted, and a
post goes directly to our own mediators alone. To any other address our mediator posts it, and returns the result
(`didcomm/protocols/relayed_post.py`), so that all that builds on results is as usual: the proof of mediators, receipts,
other routes after a failure. Without a mediator that relays, nothing is sent, and the log retransmits later.
"""

from collections.abc import Callable

from zerochat.didcomm.did import resolve_pinned
from zerochat.didcomm.invitation import WEB_SCHEMES
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import problem, relayed_post
from zerochat.didcomm.service import routes
from zerochat.errors import RemoteError
from zerochat.group.effects import AllowClient, Dial, Measure, Notify, WebPost
from zerochat.group.external import mediators, outbox, sending
from zerochat.group.links import mail_failures
from zerochat.group.links.mediator_mail import announced_routes
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Agent, Connection, RelayedPost
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

PENDING_MAX = 1_024
"""Posts whose result is awaited: two for each member of eight full groups, which one retransmission may need. What
exceeds this is dropped, and the log retransmits it."""
RESULT_MS = 90_000
"""How long a result is awaited: the mediator's own timeout, and a queue before it."""
UNSUPPORTED = "e.m.msg.unsupported"


def relay_of(agent: Agent) -> Connection | None:
    """The mediator of ours that posts for us now; None: there is none, and nothing can be sent."""
    for one in agent.connections.values():
        state = one.mediation
        if state is None or state.phase != "granted" or not state.connected or one.id in agent.unrelaying:
            continue
        if state.routing_did is None:
            continue  # one of version 1.0
        if mediators.websocket_uri(one) in agent.websockets_up:
            return one
    return None


def own_uris(agent: Agent) -> frozenset[str]:
    """The addresses of our own mediators."""
    found: set[str] = set()
    for one in agent.connections.values():
        if one.mediation is None:
            continue
        candidates = list(routes(resolve_pinned(one.relationship.theirs))) if one.relationship.established else []
        candidates += [one.route] if one.route is not None else []
        found |= {way.uri for way in candidates if way.uri.startswith(WEB_SCHEMES) and not way.routing_keys}
    return frozenset(found)


def divert(tx: Transaction, before: Agent) -> None:
    """Let only such effects of a step out as `mediated_only` allows; `before`: the agent before the step, whose
    mediators may still be told of their end."""
    effects, tx.effects = tx.effects, []
    own: frozenset[str] | None = None
    for effect in effects:
        match effect:
            case Dial() | AllowClient():
                pass  # emitted for every peer, again and again: no news
            case WebPost(uri):
                own = own_uris(before) | own_uris(tx.agent) if own is None else own
                if uri in own:
                    tx.emit(effect)
                else:
                    _relay(tx, effect)
            case _:
                tx.emit(effect)


def _relay(tx: Transaction, post: WebPost) -> None:
    relay = relay_of(tx.agent)
    if relay is None or len(tx.agent.relayed_posts) >= PENDING_MAX:
        # The outbox is not told: its next try would be a post that passes no `divert`. It waits for the result in vain.
        tx.emit(Measure("dropped", "NoRelay" if relay is None else "RelayFull"))
        return
    try:
        wanted = relayed_post.PostRequest(post.uri, post.envelope, post.media_type, post.nearest)
        message = relayed_post.post(wanted, tx.context.random)
        sending.send(tx, relay.id, message)
    except RemoteError:
        tx.emit(Measure("dropped", "CannotWrap"))
        return
    pending = RelayedPost(post.uri, relay.id, tx.now, post.reference)
    tx.update_agent(relayed_posts={**tx.agent.relayed_posts, message.id: pending})
    tx.set_timer(TimerKind.RELAYED_POSTS, "", RESULT_MS, if_unset=True)


# --- results --------------------------------------------------------------------------------------------------------


def receive(tx: Transaction, name: str, message: Message, take: Callable[[bytes], None]) -> bool:
    """Process the result of a post; False: it is another message. `take` processes the answer to the post. Raises
    RemoteError."""
    is_result, is_problem = relayed_post.kind_of(message) == "posted", problem.is_problem(message)
    if not (is_result or is_problem):
        return False
    thread = next((each for each in (message.thid, message.pthid) if each in tx.agent.relayed_posts), None)
    if thread is None or tx.agent.relayed_posts[thread].connection != name:
        return is_result
    pending = tx.agent.relayed_posts[thread]
    _forget(tx, lambda key, one: key == thread)
    if is_problem:
        if problem.read_problem(message).code != UNSUPPORTED:
            return False
        tx.update_agent(unrelaying=tx.agent.unrelaying | {name})
        label = tx.agent.connections[name].label
        tx.emit(Notify(ConnectionChanged(name, f"{label} cannot send for you, as network.hidden = always requires.")))
        return True
    result = relayed_post.read_posted(message)
    if result.why == relayed_post.BUSY:
        tx.emit(Measure("dropped", "RelayBusy"))
        outbox.post_failed(tx, pending.reference)
    elif result.why:
        mail_failures.post_failed(tx, pending.uri)
        outbox.post_failed(tx, pending.reference)
    else:
        if result.answer:
            with tx.attempt():
                take(result.answer)
        outbox.post_delivered(tx, pending.reference)
    return True


def handle_timer(tx: Transaction) -> None:
    """Forget the posts whose result has not come; whether they have arrived is unknown."""
    _forget(tx, lambda key, one: not tx.now - RESULT_MS < one.at <= tx.now)
    if tx.agent.relayed_posts:
        tx.set_timer(TimerKind.RELAYED_POSTS, "", RESULT_MS)


def _forget(tx: Transaction, is_over: Callable[[str, RelayedPost], bool]) -> None:
    left = {key: one for key, one in tx.agent.relayed_posts.items() if not is_over(key, one)}
    if len(left) < len(tx.agent.relayed_posts):
        tx.update_agent(relayed_posts=left)


# --- the connection to the mediator ---------------------------------------------------------------------------------


def handle_websocket_up(tx: Transaction, uri: str) -> None:
    """A mediator of ours can be reached again: what could not be sent meanwhile is sent now."""
    there = {name for name, one in tx.agent.connections.items() if one.mediation and _is_at(tx.agent, name, uri)}
    tx.update_agent(unrelaying=tx.agent.unrelaying - there)
    if not tx.agent.mediated_only or not there:
        return
    for name, group in tx.agent.groups.items():
        if group.state != "left":
            ways = [way.uri for member in group.links.peers for way in announced_routes(tx.group(name), member)]
            for way in dict.fromkeys(ways):
                tx.set_timer(TimerKind.WEB_RETRY, way, 1)


def handle_websocket_down(tx: Transaction, uri: str) -> None:
    """The results of its posts are lost."""
    _forget(tx, lambda key, one: one.connection not in tx.agent.connections or _is_at(tx.agent, one.connection, uri))


def _is_at(agent: Agent, name: str, uri: str) -> bool:
    return mediators.websocket_uri(agent.connections[name]) == uri
