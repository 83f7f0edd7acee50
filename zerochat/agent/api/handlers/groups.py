"""Handlers of groups: creation, invitations, joins, join requests and leaving."""

import time
from typing import Final

from msgspec import to_builtins

from zerochat import rpc
from zerochat.agent.api.handlers.context import BadRequest, Context, Handler
from zerochat.agent.invitations.pasted_text import read_for_group
from zerochat.agent.views.groups import join_requests, open_invitations
from zerochat.didcomm.invitation import ENVELOPES
from zerochat.errors import LocalError
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerJoinRequest,
    AnswerPrivateInvitation,
    CancelJoin,
    ChooseRetention,
    CreateGroup,
    CreateInvitation,
    DismissDoubts,
    ForgetGroup,
    LeaveGroup,
    OpenConversation,
    Rekey,
    ResumeGroup,
    RevokeInvitation,
    UpgradeKeys,
)
from zerochat.group.key_modes import OFFERED
from zerochat.group.membership import Policy
from zerochat.group.state import Group
from zerochat.names import checked_name
from zerochat.presentation import group_kinds, group_rules, history_rules, keep_rules
from zerochat.rpc import GroupParams

EXPIRES_S_MAX: Final = 30 * 24 * 3600


class MoreThanTheGroup(LocalError):
    """An invitation cannot give more history than the group: new members of {group} get {given}."""


def list_groups(context: Context[rpc.NoParams]) -> list[rpc.GroupInfo]:
    return [context.services.group_info(context.agent, group) for group in context.agent.groups.values()]


def create_group(context: Context[rpc.CreateGroupParams]) -> CreateGroup:
    params = context.params
    rules = group_rules.completed_policy(
        params.join,
        params.remove,
        params.quorum,
        params.roles,
        params.agreement,
        params.history,
        params.keepers,
        params.keep,
    )
    if params.keys not in OFFERED:
        raise BadRequest(why=f"unknown keys {params.keys[:32]!a}; choose {', '.join(OFFERED)}")
    group_kinds.check_axes(params.accountability, params.keys, params.path, params.keep)
    policy = Policy(**to_builtins(rules))
    envelope = check_envelope(params.envelope)
    return CreateGroup(
        params.group, context.agent.label, envelope, params.keys, policy, params.accountability, params.path
    )


def create_invitation(context: Context[rpc.CreateInvitationParams]) -> CreateInvitation:
    params = context.params
    if not (1 <= params.expires_s <= EXPIRES_S_MAX and (params.uses is None or params.uses >= 1)):
        raise BadRequest(why="an invitation is valid for 1 second to 30 days and for at least one use")
    history = "all" if params.history is None else _invitation_history(context.group, params.history)
    name = checked_name(params.name, "name of an invitation") if params.name else ""
    return CreateInvitation(params.group, params.expires_s, params.uses, _joining_role(params.role), history, name)


def _invitation_history(group: Group, rule: str) -> str:
    """The history rule of an invitation. Raises BadHistory or MoreThanTheGroup."""
    history_rules.check(rule)
    policy = group.view.policy.history
    if history_rules.exceeds(rule, policy):
        raise MoreThanTheGroup(group=group.name, given=history_rules.rule_text(policy))
    return rule


def _joining_role(role: str) -> str:
    if role not in ("reader", "writer"):
        raise BadRequest(why=f"cannot join as {role[:32]!a}, only as reader or writer")
    return role


def check_envelope(name: str) -> str:
    """A supported envelope format. Raises BadRequest."""
    if name not in ENVELOPES:
        raise BadRequest(why=f"unknown envelope format {name[:32]!a}; choose {' or '.join(ENVELOPES)}")
    return name


def list_invitations(context: Context[GroupParams]) -> list[rpc.OpenInvitation]:
    return open_invitations(context.agent, context.group)


def revoke_invitation(context: Context[rpc.RevokeInvitationParams]) -> RevokeInvitation:
    return RevokeInvitation(context.params.group, context.params.invitation)


def join_group(context: Context[rpc.JoinGroupParams]) -> AcceptInvitation:
    params = context.params
    invitation = read_for_group(params.invitation, int(time.time()))
    return AcceptInvitation(invitation, params.name or context.agent.label, _joining_role(params.role))


def cancel_join(context: Context[rpc.CancelJoinParams]) -> CancelJoin:
    return CancelJoin(context.params.join)


def list_join_requests(context: Context[GroupParams]) -> list[rpc.JoinRequestInfo]:
    return join_requests(context.group)


def answer_join_request(context: Context[rpc.AnswerJoinRequestParams]) -> AnswerJoinRequest:
    params = context.params
    return AnswerJoinRequest(context.group.id, params.member, params.admit, params.nick, params.role)


def open_conversation(context: Context[rpc.OpenConversationParams]) -> OpenConversation:
    return OpenConversation(context.params.group, context.params.member)


def answer_private_invitation(context: Context[rpc.AnswerPrivateInvitationParams]) -> AnswerPrivateInvitation:
    return AnswerPrivateInvitation(context.group.id, context.params.member, context.params.accept)


def dismiss_warnings(context: Context[rpc.DismissWarningsParams]) -> DismissDoubts:
    return DismissDoubts(context.group.id, context.params.member)


def leave_group(context: Context[GroupParams]) -> LeaveGroup:
    return LeaveGroup(context.params.group)


def forget_group(context: Context[GroupParams]) -> ForgetGroup:
    return ForgetGroup(context.group.id)


def upgrade_group(context: Context[rpc.GroupParams]) -> UpgradeKeys:
    return UpgradeKeys(context.group.id)


def rekey_group(context: Context[rpc.GroupParams]) -> Rekey:
    return Rekey(context.group.id)


def set_retention(context: Context[rpc.SetRetentionParams]) -> ChooseRetention:
    keep_rules.check_keep(context.params.keep)
    return ChooseRetention(context.group.id, context.params.keep)


def resume_group(context: Context[GroupParams]) -> ResumeGroup:
    return ResumeGroup(context.group.id)


HANDLERS: Final[dict[str, Handler]] = {
    "list_groups": list_groups,
    "create_group": create_group,
    "create_invitation": create_invitation,
    "list_invitations": list_invitations,
    "revoke_invitation": revoke_invitation,
    "join_group": join_group,
    "cancel_join": cancel_join,
    "list_join_requests": list_join_requests,
    "answer_join_request": answer_join_request,
    "open_conversation": open_conversation,
    "answer_private_invitation": answer_private_invitation,
    "dismiss_warnings": dismiss_warnings,
    "leave_group": leave_group,
    "forget_group": forget_group,
    "set_retention": set_retention,
    "upgrade_group": upgrade_group,
    "rekey_group": rekey_group,
    "resume_group": resume_group,
}
