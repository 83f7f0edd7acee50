"""Groups, invitations, join requests and joins as the control protocol shows them."""

import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Literal

from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.views import members as roster
from zerochat.agent.views import tlog_status
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.delivery import is_refused_by, reach, reading
from zerochat.agent.views.display_names import DisplayNames
from zerochat.group import retention
from zerochat.group.external import short_links
from zerochat.group.joining import requests
from zerochat.group.joining.private_conversations import is_waiting
from zerochat.group.links.contact import join_link
from zerochat.group.links.neighbours import is_forwarding
from zerochat.group.membership import (
    attestation,
    log_of,
    upgrades,
)
from zerochat.group.state import Agent, BackfillProgress, Claim, Consent, Group, Join, JoinState, OpenInvitation
from zerochat.group.state.joins import AWAITING_INVITER, ENDS
from zerochat.group.sync import stale_profile
from zerochat.group.sync.aggregation import recipients, settled_upto
from zerochat.group.sync.backfill import remaining
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import Author, GroupInfo, HistoryStart, InvitationInfo
from zerochat.rpc.common import timestamp
from zerochat.terminal_text import printable_line


def group_info(
    agent: Agent,
    group: Group,
    topic: str = "",
    read: rpc.ReadState | None = None,
    names: DisplayNames | None = None,
) -> GroupInfo:
    """The state of a group. Its lists name at most as many members as one answer may."""
    read, names = read or rpc.ReadState(group=group.id), names if names is not None else DisplayNames(group)
    refusing = (did for did in group.others if is_refused_by(agent, group, did))
    turn = reading(agent)
    ways = [reach(agent, group, member, turn) for member in group.others]
    return GroupInfo(
        id=group.id,
        name=group.name,
        state=group.state,
        me=group.me,
        nick=names.get(group.me, agent.label),
        members=len(group.view.members),
        connected=sum(connection == "connected" for connection, _ in ways),
        via_mediator=sum(way == ("connected", "mediator") for way in ways),
        keys=group.keys,
        path=group.profile.path,
        forwards=group.me in group.view.members and is_forwarding(group),
        accountability=group.profile.accountability,
        upgrade=_upgrade_info(group),
        upgraded_from=group.profile.keys if group.keys != group.profile.keys else "",
        envelope=group.profile.envelope,
        view=group.view.checksum,
        unacknowledged=unacknowledged(group),
        quota_used_up=_authors(refusing, names),
        created_at=timestamp(group.created),
        topic=topic,
        policy=roster.policy_info(group.view.policy),
        keep=retention.keep_ms(agent, group),
        keep_choice=group.retention.choice,
        keep_setting=agent.keep_ms,
        role=roster.role_of(group, group.me),
        tlog=tlog_status.state(group),
        removed_by=Author(group.removed_by, names.get(group.removed_by, "")) if group.removed_by else None,
        voters=_authors(roster.voters(group), names),
        votes=roster.votes(group),
        requests=join_requests(group),
        private=_private_info(agent, group),
        private_invitations=private_invitations(group, names),
        forked=attestation.forked_members(group)[:MEMBER_PAGE_MAX],
        warnings=[
            rpc.WarningNotification(group.id, one.member, names.get(one.member, ""), one.text)
            for one in islice(attestation.warnings_of(group), MEMBER_PAGE_MAX)
        ],
        completeness=completeness(group, _near(agent, group), int(time.time() * 1000)),
        history_start=history_start(group),
        suspended=group.state == "active" and stale_profile.is_suspended(group),
        unread=read.unread,
        mentions=read.mentions,
        first_unread=read.first_unread,
        read_upto=read.read_upto,
    )


def _authors(members: Iterable[str], names: DisplayNames) -> list[Author]:
    return [Author(did, names.get(did, "")) for did in islice(members, MEMBER_PAGE_MAX)]


def _upgrade_info(group: Group) -> rpc.UpgradeInfo | None:
    """The upgrade of its keys that is possible; None: there is none, or we are no member."""
    keys = upgrades.target_of_upgrade(group.view)
    if not keys or group.state != "active":
        return None
    agreed = upgrades.upgraders(group.control, group.view)
    parties = log_of(group.control).parties
    return rpc.UpgradeInfo(
        keys=keys,
        votes=len(upgrades.counted(group.view, agreed, lambda members: parties(members, group.me))),
        needed=upgrades.agreement_needed(group.view),
        voted=group.me in agreed,
        allowed=upgrades.may_upgrade(group.view, group.me, keys),
    )


def _near(agent: Agent, group: Group) -> set[str]:
    """The members that are connected by a link now."""
    return {did for did, peer in group.links.peers.items() if peer.link in agent.links_up}


def join_requests(group: Group) -> list[rpc.JoinRequestInfo]:
    """The join requests that wait for an answer, oldest first."""
    return [
        rpc.JoinRequestInfo(
            group=group.id,
            did=one.member,
            nick=one.label,
            role=roster.as_role(one.role),
            words=roster.join_words(one.member),
            asked_at=timestamp(one.at),
        )
        for one in sorted(group.joining.requests.values(), key=lambda one: (one.at, one.member))
        if not one.refused
    ]


def private_invitations(group: Group, names: DisplayNames) -> list[rpc.PrivateInvitationInfo]:
    """The private invitations that wait for an answer, oldest first."""
    now_ms = int(time.time() * 1000)
    return [
        rpc.PrivateInvitationInfo(
            group=group.id,
            did=member,
            nick=names.get(member, ""),
            asked_at=timestamp(one.at),
            expires_at=timestamp(one.until),
        )
        for member, one in sorted(group.joining.private.items(), key=lambda pair: (pair[1].at, pair[0]))
        if one.consent is Consent.PENDING and one.until > now_ms and member in group.view.members
        if member not in group.trust.ignored and group.state == "active"
    ]


def _private_info(agent: Agent, group: Group) -> rpc.PrivateInfo | None:
    """What makes a group a private conversation; None where it has more members than two."""
    private = group.private
    if private is None or len(group.view.members) > 2:
        return None
    state: Literal["waiting", "joined", "left"] = "left"
    if group.others and group.state == "active":
        state = "joined"
    elif is_waiting(group):
        state = "waiting"
    open_ = agent.invitations.get(private.link) if state == "waiting" else None
    return rpc.PrivateInfo(
        group=private.group,
        did=private.member,
        nick=private.label,
        state=state,
        expires_at=timestamp(open_.invitation.expires * 1000) if open_ is not None else "",
        sent_at=timestamp(private.sent_at) if open_ is not None and private.sent_at else "",
    )


def unacknowledged(group: Group) -> int:
    """The number of our events that some member has not acknowledged."""
    return max((group.seq - settled_upto(group, did) for did in recipients(group)), default=0)


# --- invitations and joins --------------------------------------------------------------------------------------------


def invitation_info(agent: Agent, one: OpenInvitation, shorten: Callable[[str, int], str]) -> InvitationInfo:
    """`shorten` serves a link here, as in `Services`, where no mediator does."""
    invitation, group = one.invitation, agent.groups[one.group]
    now_ms = int(time.time() * 1000)
    return InvitationInfo(
        group=group.id,
        url=invitation.url(),
        code=invitation.code(),
        expires_at=timestamp(invitation.expires * 1000),
        uses=one.uses,
        endpoint=invitation.address,
        role=roster.as_role(one.role),
        short=short_links.link_of(one) or shorten(invitation.url(), invitation.expires),
        short_missing=_why_no_short_link(agent, one),
        role_binds=one.role != "reader" or group.view.policy.roles != "flat",
        history=one.history,
        id=requests.invitation_name(join_link(invitation.id)),
        name=one.name,
        open_count=sum(
            other.group == group.id and short_links.is_usable(other, now_ms) for other in agent.invitations.values()
        ),
    )


NO_SHORT_LINK: Final = {
    "unsupported": "the mediator ({label}) runs an older version or another program, which cannot serve one",
    "full": "the mediator ({label}) has no room for another one",
    "behind": "the mediator ({label}) is behind another one, so joiners cannot reach it",
    "large": "the invitation is too long for the mediator ({label})",
    "offline": "this agent is not connected to the mediator ({label})",
    "": "the mediator ({label}) has not answered",
}
"""Why a mediator serves no short link, by its refusal (`short_links.REFUSALS`)."""


def _why_no_short_link(agent: Agent, one: OpenInvitation) -> str:
    short = one.short
    if short is None or short.page:
        return ""
    connection = agent.connections.get(short.connection)
    label = "unknown" if connection is None else printable_line(connection.label, 64)
    why = NO_SHORT_LINK.get(
        short.why if short.why or short.asked else "offline", "the mediator ({label}) refused"
    ).format(label=label)
    return f"There is no short link: {why}. The full link works."


def open_invitations(agent: Agent, group: Group) -> list[rpc.OpenInvitation]:
    """The open invitations to a group, in the order of expiry."""
    ours = [(link, one) for link, one in agent.invitations.items() if one.group == group.id]
    return [
        rpc.OpenInvitation(
            id=requests.invitation_name(link),
            group=group.id,
            expires_at=timestamp(one.invitation.expires * 1000),
            uses=one.uses,
            role=roster.as_role(one.role),
            history=one.history,
            name=one.name,
            invitees=[
                _invitee(group, claim) for claim in sorted(one.claims.values(), key=lambda claim: claim.claimed_at)
            ],
        )
        for link, one in sorted(ours, key=lambda pair: (pair[1].invitation.expires, pair[0]))
    ]


def _invitee(group: Group, claim: Claim) -> rpc.Invitee:
    did = claim.relationship.member
    at = timestamp(claim.claimed_at) if claim.claimed_at else ""
    if (member := group.view.known(did)) is not None:
        state: rpc.InviteeState = "joined" if did in group.view.members else "gone"
        return rpc.Invitee(state=state, nick=member.label, at=at)
    request = group.joining.requests.get(did)
    if request is None:
        return rpc.Invitee(state="joining", at=at)
    return rpc.Invitee(state="gone" if request.refused else "waiting", nick=request.label, at=at)


_PHASES: Mapping[JoinState, rpc.JoinPhase] = {
    JoinState.EXCHANGING: "exchanging",
    JoinState.REQUESTING: "asking",
    JoinState.PENDING: "asking",
    JoinState.CONNECTING: "connecting",
}


def joins(agent: Agent, told: Mapping[str, rpc.JoinStatus]) -> list[rpc.JoinStatus]:
    """The joins in progress with their last status by id, and the last failed one."""
    found, failed = [], None
    for one in agent.joins.values():
        last = told.get(one.id)
        if one.state in ENDS:
            failed = last if last is not None and last.phase == "failed" else failed
        elif one.state is not JoinState.JOINED:
            text = f"Joining {one.name}." if one.name else "Connecting to the inviter."
            begun = rpc.JoinStatus(join=one.id, phase=_PHASES[one.state], text=text, group=one.group)
            found.append(join_details(last if last is not None and last.phase != "failed" else begun, one))
    return [*found, failed] if failed is not None else found


def join_details(status: rpc.JoinStatus, ours: Join) -> rpc.JoinStatus:
    """The status with the details of the join."""
    words = roster.join_words(ours.me) if ours.state is JoinState.PENDING and status.phase != "failed" else []
    # With everybody away a newcomer is in all the same, and waits for them for as long as that takes.
    until = timestamp(ours.deadline) if ours.state in AWAITING_INVITER else ""
    since = timestamp(ours.begun_at) if ours.begun_at else ""
    return replace(
        status,
        words=words,
        name=ours.name,
        started_at=since,
        expires_at=until,
        cancelling=ours.state is JoinState.CANCELLING,
    )


def cancelled_join(agent: Agent, join: str) -> rpc.JoinStatus:
    """A cancelled join."""
    ours = next(one for one in agent.joins.values() if one.id == join)
    status = rpc.JoinStatus(join=join, phase="failed", text="Cancelled.", group=ours.group)
    return join_details(status, ours)


def history_start(group: Group) -> HistoryStart:
    """Where a group's history begins here, and why. `whole` relies on the members that could be queried."""
    me = group.view.known(group.me)
    if not group.joining.event or me is None:
        return HistoryStart(state="whole", joined=me.joined if me else 0)
    rules = [group.view.policy.history, me.history]
    progress = group.sync.backfill or BackfillProgress()
    more, left = remaining(group)
    return HistoryStart(
        state=_history_state(group, rules, progress, more, left),
        rules=rules,
        joined=me.joined,
        received=progress.received,
        remaining=left,
    )


def _history_state(
    group: Group, rules: list[str], progress: BackfillProgress, more: bool, left: int
) -> Literal["whole", "fetching", "withheld", "gone", "ended"]:
    if "none" in rules:
        return "withheld"
    if not progress.done:
        return "fetching" if group.state == "active" else "ended"
    last = [int(rule.partition(":")[2]) for rule in rules if rule.startswith("last:")]
    if not more or (not left and (progress.received < min(last) if last else rules == ["all", "all"])):
        return "whole"
    if rules == ["all", "all"] or (last and progress.received < min(last)):
        return "gone"
    return "withheld"
