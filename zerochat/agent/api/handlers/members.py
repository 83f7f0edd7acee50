"""Handlers of members: list, removal, roles, display names and verification."""

from typing import Final

from zerochat import rpc
from zerochat.agent.api.handlers.context import BadRequest, Context, Handler
from zerochat.agent.views.members import ignored_member, member_page, safety_words_view
from zerochat.agent.views.overlay import overlay_info
from zerochat.errors import LocalError
from zerochat.group.inputs import ChangeLabel, ChangeRole, IgnoreMember, RemoveMember, VerifyMember
from zerochat.group.lookup import find_author, find_member
from zerochat.group.state import Group


class OwnWords(LocalError):
    """You cannot verify yourself. `zerochat verify {group}` shows the safety words of the whole group."""


def list_members(context: Context[rpc.ListMembersParams]) -> list[rpc.MemberInfo]:
    group = context.group
    return context.services.members(context.agent, group, member_page(group, context.params))


def get_overlay(context: Context[rpc.GroupParams]) -> rpc.OverlayInfo:
    return overlay_info(context.agent, context.group, context.services.counters)


def remove_member(context: Context[rpc.RemoveMemberParams]) -> RemoveMember:
    group = context.group
    return RemoveMember(group.id, find_member(group, context.params.member))


def set_role(context: Context[rpc.SetRoleParams]) -> ChangeRole:
    group, role, member = context.group, context.params.role, context.params.member
    if role not in ("reader", "writer", "admin", "owner"):
        raise BadRequest(why=f"unknown role {role[:32]!a}; choose reader, writer, admin or owner")
    return ChangeRole(group.id, find_member(group, member) if member else "", role)


def set_display_name(context: Context[rpc.SetDisplayNameParams]) -> ChangeLabel:
    return ChangeLabel(context.group.id, context.params.name)


def get_safety_words(context: Context[rpc.SafetyWordsParams]) -> rpc.SafetyWords:
    group = context.group
    return safety_words_view(group, _other_member(group, context.params.member), context.params.entered)


def verify_member(context: Context[rpc.VerifyMemberParams]) -> VerifyMember:
    group = context.group
    return VerifyMember(group.id, _other_member(group, context.params.member), context.params.verified)


def ignore_member(context: Context[rpc.IgnoreMemberParams]) -> IgnoreMember:
    group = context.group
    return IgnoreMember(group.id, find_author(group, context.params.member), context.params.ignored)


def list_ignored(context: Context[rpc.GroupParams]) -> list[rpc.IgnoredMember]:
    return [ignored_member(context.group, did) for did in context.group.trust.ignored]


def _other_member(group: Group, name: str) -> str:
    """The DID of a member other than this profile; empty where `name` is. Raises OwnWords, or as `find_member`."""
    member = find_member(group, name) if name else ""
    if member == group.me:
        raise OwnWords(group=group.name)
    return member


HANDLERS: Final[dict[str, Handler]] = {
    "list_members": list_members,
    "get_overlay": get_overlay,
    "remove_member": remove_member,
    "set_role": set_role,
    "set_display_name": set_display_name,
    "get_safety_words": get_safety_words,
    "verify_member": verify_member,
    "ignore_member": ignore_member,
    "list_ignored": list_ignored,
}
