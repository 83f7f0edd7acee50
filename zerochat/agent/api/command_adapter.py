"""What faces wish, as commands to the core: the params of a request, read, checked and put into the core's own terms.

Which member a request means is settled here and named by DID in the command, so that it stays who was meant.
"""

from collections.abc import Callable

from msgspec import Struct, to_builtins

from zerochat import rpc
from zerochat.agent.invitations.parse import read_for_group, read_pasted
from zerochat.didcomm.invitation import ENVELOPES
from zerochat.errors import LocalError
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerRequest,
    AskFeatures,
    CancelJoin,
    ChangeLabel,
    ChangeRole,
    Command,
    Connect,
    CreateGroup,
    CreateInvitation,
    DismissDoubts,
    EndConnection,
    ForgetGroup,
    ImportEvents,
    LeaveGroup,
    OfferConnection,
    PingPeer,
    RemoveMember,
    ResumeGroup,
    RevokeInvitation,
    RotateDid,
    SetTerms,
    Tell,
    VerifyMember,
)
from zerochat.group.key_modes import MODES
from zerochat.group.lookup import find_group, find_member
from zerochat.group.membership import Policy
from zerochat.group.state import Agent, Group
from zerochat.presentation import group_rules, history_rules

EXPIRES_S_MAX = 30 * 24 * 3600


class BadRequest(LocalError):
    """This cannot be asked so: {why}."""


class OwnWords(LocalError):
    """That is you, and words are compared with somebody else. `zerochat verify {group}` shows those of the whole group,
    which everybody in it has."""


class MoreThanTheGroup(LocalError):
    """An invitation cannot give more of what was said before than the group does: newcomers to {group} get {given}."""


def command_of(method: str, params: Struct, agent: Agent, now: int) -> Command | None:
    """The command that a request is; None for a question, which the core need not be asked. `now`: UTC seconds.

    Raises a LocalError for what cannot be asked so.
    """
    match params:
        case rpc.NewParams():
            return _new(params, agent)
        case rpc.RevokeParams(group, invitation):
            return RevokeInvitation(group, invitation)
        case rpc.InviteParams(group, expires_s, uses, role, history):
            if not (1 <= expires_s <= EXPIRES_S_MAX and uses >= 1):
                raise BadRequest(why="an invitation is good for 1 second to 30 days and for at least one person")
            given = "all" if history is None else _given(find_group(agent, group), history)
            return CreateInvitation(group, expires_s, uses, _joining_role(role), given)
        case rpc.JoinParams(invitation, name, role):
            return AcceptInvitation(read_for_group(invitation, now), name or agent.label, _joining_role(role))
        case rpc.CancelParams(join):
            return CancelJoin(join)
        case rpc.DismissParams(group, member):
            return DismissDoubts(find_group(agent, group).id, member)
        case rpc.GroupParams(group) if method == "forget":
            return ForgetGroup(find_group(agent, group).id)
        case rpc.GroupParams(group) if method == "resume":
            return ResumeGroup(find_group(agent, group).id)
        case rpc.ImportParams(group, records, back):
            return ImportEvents(find_group(agent, group).id, tuple(records), back)
        case rpc.GroupParams(group) if method == "leave":
            return LeaveGroup(group)
        case rpc.AnswerParams() | rpc.RemoveParams() | rpc.RoleParams() | rpc.RenameParams() | rpc.VerifyParams():
            return _about_members(find_group(agent, params.group), params)
        case rpc.TermsParams(group, operator, witnesses):
            return SetTerms(group, operator, tuple(witnesses))
        case _:
            return _about_peers(method, params, now)


def _new(params: rpc.NewParams, agent: Agent) -> Command:
    rules = group_rules.settled(
        params.join, params.remove, params.quorum, params.roles, params.agreement, params.history, params.keepers
    )
    if params.keys not in MODES:
        raise BadRequest(why=f"there are no keys called {params.keys[:32]!a}, only {', '.join(MODES)}")
    group_rules.check_accountability(params.accountability, params.keys)
    policy = Policy(**to_builtins(rules))
    made = params.group, agent.label, _envelope(params.envelope), params.keys, policy
    return CreateGroup(*made, params.accountability)


def _given(group: Group, rule: str) -> str:
    """What an invitation gives of the history. Raises BadHistory, or MoreThanTheGroup."""
    history_rules.check(rule)
    policy = group.view.policy.history
    if history_rules.exceeds(rule, policy):
        raise MoreThanTheGroup(group=group.name, given=history_rules.given(policy))
    return rule


def _joining_role(role: str) -> str:
    if role not in ("reader", "writer"):
        raise BadRequest(why=f"nobody can join as {role[:32]!a}, only as reader or writer")
    return role


def _about_members(
    group: Group,
    params: rpc.AnswerParams | rpc.RemoveParams | rpc.RoleParams | rpc.RenameParams | rpc.VerifyParams,
) -> Command:
    """What is asked about a member, or somebody who wants to be one."""
    match params:
        case rpc.AnswerParams(_, who, admit, nick, role):
            return AnswerRequest(group.id, who, admit, nick, role)
        case rpc.RemoveParams(_, member):
            return RemoveMember(group.id, find_member(group, member))
        case rpc.RoleParams(_, role, member):
            if role not in ("reader", "writer", "admin"):
                raise BadRequest(why=f"there is no role called {role[:32]!a} to give, only reader, writer and admin")
            return ChangeRole(group.id, find_member(group, member) if member else "", role)
        case rpc.RenameParams(_, name):
            return ChangeLabel(group.id, name)
        case rpc.VerifyParams(_, member, verified):
            return VerifyMember(group.id, other_member(group, member), verified)


def other_member(group: Group, wanted: str) -> str:
    """The DID of a member that is not ourselves; empty where nobody is named. Raises OwnWords, or as `find_member`."""
    member = find_member(group, wanted) if wanted else ""
    if member == group.me:
        raise OwnWords(group=group.name)
    return member


def _about_peers(method: str, params: object, now: int) -> Command | None:
    """What is asked about one peer, whether a member or a connection."""
    match params:
        case rpc.PeerParams(peer):
            commands: dict[str, Callable[[str], Command]] = {
                "ping": PingPeer,
                "rotate": RotateDid,
                "disconnect": EndConnection,
            }
            return commands[method](peer) if method in commands else None
        case rpc.FeaturesParams(peer, match):
            return AskFeatures(peer, match)
        case rpc.TellParams(peer, text):
            return Tell(peer, text)
        case rpc.ConnectParams(invitation, name, mediate):
            return Connect(read_pasted(invitation, now), name, mediate)
        case rpc.OfferParams(envelope, expires_s):
            if not 1 <= expires_s <= EXPIRES_S_MAX:
                raise BadRequest(why="an invitation is good for 1 second to 30 days")
            return OfferConnection(_envelope(envelope), "", expires_s)
    return None


def _envelope(name: str) -> str:
    """A kind of envelopes that there is. Raises BadRequest."""
    if name not in ENVELOPES:
        raise BadRequest(why=f"there are no envelopes called {name[:32]!a}, only {' and '.join(ENVELOPES)}")
    return name
