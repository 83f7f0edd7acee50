"""All groups of the profile in the agent's order, and which of them is open."""

from collections.abc import Sequence

from msgspec import Struct, field

from zerochat.names import ambiguous_prefixes, matching_ids
from zerochat.presentation.lookalikes import skeleton
from zerochat.rpc import GroupInfo, JoinRequestInfo
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.style.text import name_of


class Conversations(Struct):
    """All groups in the agent's stable order, and the open one."""

    by_id: dict[str, Conversation] = field(default_factory=dict)
    open_id: str = ""

    @property
    def open(self) -> Conversation | None:
        return self.by_id.get(self.open_id)

    def update(self, groups: Sequence[GroupInfo], line: int) -> None:
        """Update from the agent's list of groups. A group that is gone, or was joined anew, is no longer open.
        `line`: the line number of the response."""
        known = {info.id: each for info in groups if (each := self.by_id.get(info.id)) and each.info.me == info.me}
        self.by_id = {}
        for info in groups:
            conversation = known.get(info.id) or Conversation(info)
            conversation.info = info
            conversation.set_read_state(info, line)
            conversation.relabelled |= conversation.update_gaps()
            conversation.relabelled |= conversation.update_head()
            conversation.names.learn(info.me, info.nick)
            self.by_id[info.id] = conversation
        if self.open_id not in known:
            self.open_id = ""
        apart = ambiguous_prefixes({info.id: name_of(info.name) for info in groups}, skeleton)
        for id, conversation in self.by_id.items():
            conversation.disambiguator = apart.get(id, "")

    def find(self, wanted: str) -> list[str]:
        """Ids of the groups with this name or id prefix; those that we have left only where there is no other."""
        found = matching_ids({id: (each.info.name,) for id, each in self.by_id.items()}, wanted)
        return [id for id in found if self.by_id[id].active] or found

    def numbered(self, number: int) -> str | None:
        ids = list(self.by_id)
        return ids[number - 1] if 1 <= number <= len(ids) else None

    def beside(self, step: int) -> str | None:
        """The group `step` further in the list, cyclic."""
        ids = list(self.by_id)
        if not ids:
            return None
        here = ids.index(self.open_id) if self.open_id in self.by_id else -1 if step > 0 else 0
        return ids[(here + step) % len(ids)]

    def next_unread(self) -> str | None:
        """The next group with a mention, else with unread posts or join requests, cyclic from the open one."""
        ids = list(self.by_id)
        here = ids.index(self.open_id) if self.open_id in self.by_id else -1
        around = ids[here + 1 :] + ids[: here + 1]
        called = next((id for id in around if self.by_id[id].mentions and id != self.open_id), None)
        if called is not None:
            return called
        for id in around:
            info = self.by_id[id].info
            if (self.by_id[id].unread or info.requests or info.private_invitations) and id != self.open_id:
                return id
        return None

    def requests_elsewhere(self) -> list[JoinRequestInfo]:
        """Join requests of the groups that are not open."""
        return [request for id, each in self.by_id.items() if id != self.open_id for request in each.info.requests]

    def invitations_elsewhere(self) -> int:
        """The number of private invitations in the groups that are not open."""
        return sum(len(each.info.private_invitations) for id, each in self.by_id.items() if id != self.open_id)

    def mentions_elsewhere(self) -> int:
        return sum(each.mentions for id, each in self.by_id.items() if id != self.open_id)

    def unread_elsewhere(self) -> int:
        return sum(each.unread for id, each in self.by_id.items() if id != self.open_id)
