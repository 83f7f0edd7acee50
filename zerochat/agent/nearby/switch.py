"""The switch of nearby: the user's choice, the thread while it is on, and what it finds for the transport.

Off until the user turns it on, for the networks and the groups that the user names. It is refused where the agent
hides its address: an announcement shows on the network that this machine runs zerochat.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.nearby.networks import Network, networks
from zerochat.agent.nearby.session import HASHES_MAX, Ports, token
from zerochat.agent.network.zmq.transport import Transport
from zerochat.agent.storage.journal import Journal
from zerochat.closing import Closing
from zerochat.errors import LocalError, RemoteError
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc.members import MemberInfo
from zerochat.rpc.nearby import NearbyMember, NearbyNetwork, NearbyStatus, SetNearbyParams

if TYPE_CHECKING:
    from zerochat.agent.nearby.thread import NearbyThread, Place

CHOICE: Final = "nearby"
"""In the journal's meta table: the encoded `Choice`."""
UPDATE_S: Final = 2.0
"""Changes of the members reach the thread so often."""
NETWORKS_CHOSEN_MAX: Final = 64
THREAD_ENDED: Final = "It has ended because of an internal error. Turn it off and on again."
NO_NETWORK: Final = "This machine is connected to no network on which it is on."


class NearbyForbidden(LocalError):
    """Nearby cannot be turned on: {why}."""

    exit_code: ClassVar[int] = 3


class UnknownNetwork(LocalError):
    """This machine is connected to no network {name}. `zerochat lan` lists its networks."""

    exit_code: ClassVar[int] = 2


class NetworksFull(LocalError):
    """Nearby is on for {limit} networks already. Turn it off, or choose every network."""

    exit_code: ClassVar[int] = 2


class Choice(Struct, frozen=True):
    """What the user has chosen."""

    networks: dict[str, str] = {}
    """The names of the chosen networks by id."""
    every_network: bool = False
    groups: tuple[str, ...] | None = None
    """Ids; None: all groups."""

    @property
    def on(self) -> bool:
        return self.every_network or bool(self.networks)


class Nearby(Closing):
    """Owned by the agent thread, which calls `run` before it waits."""

    def __init__(
        self,
        journal: Journal,
        transport: Transport,
        server_secret: bytes,
        ports: Ports,
        obstacle: Callable[[Agent, Network | None], str],
        wake: Callable[[], None],
        log: logging.Logger,
    ) -> None:
        """`ports`: of our sockets. `obstacle`: why nothing may be announced on this network, or anywhere; empty: it
        may."""
        self._journal, self._transport, self._secret, self._ports = journal, transport, server_secret, ports
        self._obstacle, self._wake, self._log = obstacle, wake, log
        stored = journal.meta_get(CHOICE)
        self.choice = msgspec.msgpack.decode(stored, type=Choice) if stored else Choice()
        self._thread: NearbyThread | None = None
        self._groups: object = None
        """The state of which the thread has the hosts."""
        self._update_at = 0.0
        self._hosts: dict[bytes, bytes] = {}
        self.places: dict[bytes, tuple[Place, ...]] = {}
        """By server key: where hosts were found."""

    def close(self) -> None:
        self._stop()

    # --- while the agent runs ---------------------------------------------------------------------------------------

    def run(self, agent: Agent) -> None:
        """Start or stop the thread as it is due, give it the hosts of the members, and take what it has found."""
        if not self.choice.on or self._obstacle(agent, None):
            self._stop()
            return
        now = time.monotonic()
        if self._groups is not agent.groups and now >= self._update_at:
            self._groups, self._update_at = agent.groups, now + UPDATE_S
            hosts = self._tokens(agent)
            if self._thread is not None and hosts.keys() != self._hosts.keys():
                self._thread.set_hosts(hosts)
            self._hosts = hosts
        if self._thread is None:
            self._start(agent)
        self._take()

    def marked(self, group: Group, members: list[MemberInfo]) -> list[MemberInfo]:
        """The same, with those marked that were found."""
        if not self.places or not self._is_chosen(group):
            return members
        return [replace(one, nearby=self._places_of(group, one.did) is not None) for one in members]

    # --- requests ---------------------------------------------------------------------------------------------------

    def change(self, params: SetNearbyParams, agent: Agent) -> NearbyStatus:
        """Store the user's choice and follow it. Raises NearbyForbidden, UnknownNetwork, NetworksFull, UnknownGroup or
        AmbiguousGroup."""
        if params.on and (why := self._obstacle(agent, None)):
            raise NearbyForbidden(why=why)
        before = self.choice
        named = self._named(params) if params.networks else {one.id: one.name for one in _usable()}
        groups = tuple(dict.fromkeys(find_group(agent, name).id for name in params.groups)) or None
        if not params.on:
            self.choice = self._without(before, params, named, groups, agent)
        else:
            chosen = {**before.networks, **({} if params.every_network else named)}
            joined = None if groups is None or (before.on and before.groups is None) else (before.groups or ()) + groups
            self.choice = Choice(
                chosen, params.every_network or before.every_network, tuple(dict.fromkeys(joined)) if joined else None
            )
        if len(self.choice.networks) > NETWORKS_CHOSEN_MAX:
            self.choice = before
            raise NetworksFull(limit=NETWORKS_CHOSEN_MAX)
        self._journal.meta_set(CHOICE, msgspec.msgpack.encode(self.choice))
        if self.choice != before:
            self._stop()
            self._groups, self._update_at = None, 0.0
        self.run(agent)
        return self.status(agent)

    def status(self, agent: Agent) -> NearbyStatus:
        """Whether it is on, where, and which members were found."""
        present = networks()
        here = {one.id for one in present}
        shown = [
            NearbyNetwork(id=one.id, name=one.name, on=self._chosen(one))
            for one in present
            if not one.is_loopback or one.id in self.choice.networks
        ]
        shown += [
            NearbyNetwork(id=id_, name=name, on=True, present=False)
            for id_, name in self.choice.networks.items()
            if id_ not in here
        ]
        return NearbyStatus(
            on=self.choice.on,
            why=self._why(present, agent),
            every_network=self.choice.every_network,
            groups=None if self.choice.groups is None else list(self.choice.groups),
            networks=shown,
            heard=self._thread.announcers if self._thread is not None else 0,
            members=list(self._members(agent))[:MEMBER_PAGE_MAX],
        )

    # --- inside -----------------------------------------------------------------------------------------------------

    def _start(self, agent: Agent) -> None:
        from zerochat.agent.nearby.thread import NearbyThread

        def allowed(network: Network) -> bool:  # called in that thread: nothing of it changes while it runs
            return self._chosen(network) and not self._obstacle(agent, network)

        self._thread = NearbyThread(self._ports, self._hosts, allowed, self._wake)
        self._thread.start()
        self._log.info("looks for members nearby")

    def _stop(self) -> None:
        if self._thread is None:
            return
        self._thread.stop()
        self._thread = None
        for host in self.places:
            self._transport.links.set_nearby(host, ())
        self.places = {}

    def _take(self) -> None:
        for found in self._thread.take() if self._thread is not None else ():
            places = [(one.address, one.ports.pair, one.ports.queue) for one in found.places]
            self._transport.links.set_nearby(found.host, places)
            self.places = {host: known for host, known in self.places.items() if host != found.host}
            if found.places:
                self.places[found.host] = found.places

    def _chosen(self, network: Network) -> bool:
        """The loopback network is for tests and demonstrations: it has to be named."""
        return network.id in self.choice.networks or (self.choice.every_network and not network.is_loopback)

    def _why(self, present: Iterable[Network], agent: Agent) -> str:
        if not self.choice.on:
            return ""
        chosen: list[Network | None] = [one for one in present if self._chosen(one)]
        obstacles = [self._obstacle(agent, one) for one in chosen or [None]]
        if all(obstacles):
            return f"Nothing is announced: {obstacles[0]}."
        if self._thread is not None and not self._thread.is_alive:
            return THREAD_ENDED
        return "" if chosen else NO_NETWORK

    def _is_chosen(self, group: Group) -> bool:
        return self.choice.groups is None or group.id in self.choice.groups

    def _places_of(self, group: Group, did: str) -> "tuple[Place, ...] | None":
        """Where a member was found; None: it was not, or is ourselves or no member."""
        if did == group.me or did not in group.view.members:
            return None
        return self.places.get(reach_of_member(group, did).server_key)

    def _tokens(self, agent: Agent) -> dict[bytes, bytes]:
        """By server key: the tokens of the members of the chosen groups."""
        found: dict[bytes, bytes] = {}
        for group in filter(self._is_chosen, agent.groups.values()):
            for member in group.view.members if group.state != "left" else ():
                host = reach_of_member(group, member).server_key if member != group.me else b""
                if not host or host in found or len(found) >= HASHES_MAX:
                    continue
                try:
                    found[host] = self._hosts.get(host) or token(self._secret, host)
                except RemoteError:  # a member may announce any key
                    continue
        return found

    def _members(self, agent: Agent) -> Iterator[NearbyMember]:
        for group in filter(self._is_chosen, agent.groups.values()) if self.places else ():
            for did, member in group.view.members.items():
                places = self._places_of(group, did)
                if places is None:
                    continue
                peer = group.links.peers.get(did)
                linked = peer is not None and peer.link in agent.links_up
                addresses = [one.address for one in places]
                yield NearbyMember(group=group.id, did=did, nick=member.label, addresses=addresses, linked=linked)

    def _named(self, params: SetNearbyParams) -> Mapping[str, str]:
        """The networks that are named, by id: of those present, and when it is turned off of those chosen."""
        known = {one.id: (one.name, one.interface) for one in networks()}
        if not params.on:
            known |= {id_: (name, name.split()[0]) for id_, name in self.choice.networks.items() if id_ not in known}
        found: dict[str, str] = {}
        for name in params.networks:
            matches = {id_: names[0] for id_, names in known.items() if name in (id_, *names)}
            if not matches:
                raise UnknownNetwork(name=name[:32])
            found |= matches
        return found

    @staticmethod
    def _without(
        before: Choice,
        params: SetNearbyParams,
        named: Mapping[str, str],
        groups: tuple[str, ...] | None,
        agent: Agent,
    ) -> Choice:
        """The choice without the networks and groups that are named; without any named, all of it is off."""
        if not params.networks and groups is None:
            return Choice()
        left = before
        if params.networks:
            left = Choice({id_: name for id_, name in left.networks.items() if id_ not in named}, False, left.groups)
        if groups is not None:
            among = tuple(agent.groups) if left.groups is None else left.groups
            rest = tuple(group for group in among if group not in groups)
            left = Choice(left.networks, left.every_network, rest) if rest else Choice()
        return left


def _usable() -> list[Network]:
    return [one for one in networks() if not one.is_loopback]
