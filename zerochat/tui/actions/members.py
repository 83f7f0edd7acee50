"""Member commands (requests, verify, remove, accuse, role, rename) and notifications about members."""

from zerochat.presentation import group_rules
from zerochat.rpc import (
    AccuseParams,
    AnswerJoinRequestParams,
    CaseInfo,
    ConversationMovedNotification,
    DismissWarningsParams,
    GroupInfo,
    GroupParams,
    IgnoredMember,
    IgnoredNotification,
    IgnoreMemberParams,
    JoinRequestInfo,
    JoinRequestNotification,
    MemberConnectionsNotification,
    MemberInfo,
    PrivateInvitationInfo,
    PrivateInvitationNotification,
    RemovedNotification,
    RemoveMemberParams,
    SafetyWords,
    SafetyWordsParams,
    SetDisplayNameParams,
    SetRoleParams,
    TrustNotification,
    VoteInfo,
    WarningNotification,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions import private, verifying
from zerochat.tui.actions.targets import find_member, open_conversation, report_usage
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.messages.events import ROLES
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed_listener import GroupNotification
from zerochat.tui.style.text import name_of

ASSIGNABLE_ROLES = ("reader", "writer", "admin")
"""Roles that a member can assign to another."""


# --- news -----------------------------------------------------------------------------------------------------------


def on_notification(chat: ChatView, notification: GroupNotification) -> None:
    """Report a notification about members. The member list and the log are drawn elsewhere."""
    if isinstance(notification, PrivateInvitationNotification | ConversationMovedNotification):
        private.on_notification(chat, notification)
        return
    conversation = chat.conversations.by_id.get(notification.group)
    name = conversation.name if conversation else Printable("a group")
    here = conversation is not None and conversation is chat.conversations.open
    match notification:
        case JoinRequestNotification(member=did, nick=nick, state="asked") if not (here and chat.on_top):
            way = f" Press Esc, then {app_of(chat).key('group.requests')} to answer." if here else ""
            who = conversation.names.past_byline(did, name_of(nick)) if conversation else name_of(nick)
            chat.report(Printable(f"{who} asks to join {name}.{way}"))
        case MemberConnectionsNotification(nick=nick, connected=connected, members=members) if here:
            chat.flash(Printable(f"{name_of(nick)} is connected to {connected}/{members} members."))
        case RemovedNotification(by=by, nick=nick, voters=voters):
            known = nick and not (conversation and by == conversation.info.me)
            out_by = [name_of(voter) for voter in voters or [nick]] if known else []
            chat.report(
                printable_line(f"You are no longer in {name}: {group_rules.removal_reason(out_by)}."), trouble=True
            )
        case TrustNotification(member=did, nick=nick, trust="changed"):
            who = name_of(nick)
            if conversation is not None:
                key = conversation.timeline.add_note(did, who, Printable("has another key than the one you verified"))
                chat.rows_changed(conversation, [key] if key else [])
            if not here:
                chat.report(Printable(f"{who} in {name} has another key than the one you verified."), trouble=True)
        case IgnoredNotification(nick=nick, ignored=ignored) if conversation is not None:
            if conversation.loaded:  # the rows of the member go, or come back
                chat.run_request(chat.feed.load_newest(conversation))
            chat.flash(Printable(group_rules.ignored_state(name_of(nick), ignored)))
        case WarningNotification(text=text) if conversation is not None:
            if not here:  # in the open group the banner shows it
                chat.report(Printable(f"{name}: {printable(text)}"), trouble=True)
        case _:
            pass


# --- dialog ---------------------------------------------------------------------------------------------------------


def show_member(chat: ChatView, did: str) -> None:
    """Open the dialog of a member of the open group."""
    from zerochat.tui.dialogs.member import MemberDialog

    conversation = chat.conversations.open
    member = conversation.member(did) if conversation else None
    if conversation is None or member is None:
        return
    conversation.warnings_by_member.pop(did, None)
    chat.warnings_changed()

    def now() -> MemberInfo | None:
        return conversation.member(did)

    def act(what: str) -> None:
        if (entry := now()) is not None:
            _run_key(chat, conversation, entry, what)

    def name_warning() -> str:
        return conversation.members.name_warning(entry) if (entry := now()) is not None else ""

    screen = MemberDialog(conversation.names, now, lambda: conversation.info, act, name_warning)

    async def words() -> None:
        known = await chat.link.request("get_safety_words", SafetyWordsParams(conversation.info.id, did), SafetyWords)
        screen.set_words(known.words)

    chat.open_dialog(screen, screen.refresh_content)
    if member.connection != "self":
        chat.run_request(words())


def whois(chat: ChatView, argument: str) -> None:
    """`/members WORD`: the member of this name, or a search for a part of it."""
    if (conversation := open_conversation(chat)) is None:
        return
    named, (page, more) = conversation.members_named(argument), conversation.members.page(argument, 1)
    if not named and len(page) + more == 1:
        named = page
    if len(named) == 1:
        show_member(chat, named[0].did)
    elif named or page:
        find(chat, argument)
    else:
        find_member(chat, conversation, "members", argument)  # reports that there is none


def find(chat: ChatView, word: str = "") -> None:
    """Open the member finder."""
    from zerochat.tui.dialogs.member_finder import MemberFinder

    if (conversation := open_conversation(chat)) is None:
        return

    def chosen(did: str | None) -> None:
        if did is not None:
            show_member(chat, did)

    chat.app.push_screen(MemberFinder(conversation, word), chosen)


def _run_key(chat: ChatView, conversation: Conversation, member: MemberInfo, what: str) -> None:
    """Run the action of a key of the member dialog."""
    match what:
        case "type":
            verifying.type_words(chat, conversation, member)
        case "sight":
            verifying.confirm_mark(chat, conversation, member, True, "Do all eight words match?")
        case "unmark":
            verifying.confirm_mark(
                chat, conversation, member, False, f"Remove your verification of {name_of(member.nick)}?"
            )
        case "remove":
            _remove(chat, conversation, member)
        case "dismiss":
            chat.run_request(_dismiss(chat, conversation, member.did))
        case "owner":
            _transfer(chat, conversation, member)
        case "reader" | "writer" | "admin":
            chat.run_request(_change_role(chat, conversation, member.did, what))
        case _:
            raise AssertionError(what)


# --- join requests --------------------------------------------------------------------------------------------------


def requests(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.requests import RequestsDialog

    if (conversation := open_conversation(chat)) is None:
        return
    if not (conversation.info.requests or conversation.info.private_invitations):
        elsewhere = len(chat.conversations.requests_elsewhere()) + chat.conversations.invitations_elsewhere()
        there = f" {elsewhere} in other groups ({app_of(chat).key('go.unread')})." if elsewhere else ""
        asks = conversation.info.policy.join == "ask"
        why = "No join requests here." if asks else "No join requests here: an invitation is enough to join."
        chat.flash(Printable(why + there))
        return

    async def answer(request: JoinRequestInfo | PrivateInvitationInfo, admit: bool) -> None:
        if isinstance(request, PrivateInvitationInfo):
            await private.answer(chat, request, admit)
            return
        await chat.link.request(
            "answer_join_request",
            AnswerJoinRequestParams(request.group, request.did, admit, request.nick, request.role),
            GroupInfo,
        )
        await chat.feed.refresh()

    def waiting() -> list[JoinRequestInfo | PrivateInvitationInfo]:
        return [*conversation.info.requests, *conversation.info.private_invitations]

    screen = RequestsDialog(conversation.name, waiting, answer, chat.report_error)
    chat.open_dialog(screen, screen.refresh_content)


# --- verifying ------------------------------------------------------------------------------------------------------


def verify(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return
    if not argument:
        chat.run_request(verifying.show_group_words(chat, conversation))
    elif (member := find_member(chat, conversation, "verify", argument)) is not None:
        show_member(chat, member.did)


def dismiss(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return
    if not conversation.info.warnings:
        chat.flash(Printable("There is no warning to dismiss here."))
        return
    chat.run_request(_dismiss(chat, conversation, ""))


async def _dismiss(chat: ChatView, conversation: Conversation, did: str) -> None:
    await chat.link.request("dismiss_warnings", DismissWarningsParams(conversation.info.id, did), GroupInfo)
    await chat.feed.refresh()
    chat.flash(Printable("Warning dismissed. /members still marks the members it is about."))


# --- changing -------------------------------------------------------------------------------------------------------


def remove(chat: ChatView, argument: str) -> None:
    conversation = open_conversation(chat)
    member = find_member(chat, conversation, "remove", argument) if conversation else None
    if conversation is not None and member is not None:
        _remove(chat, conversation, member)


def _remove(chat: ChatView, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    who, group = name_of(member.nick), conversation.name
    if member.connection == "self":
        chat.report_error(Printable("You cannot remove yourself. Type /leave to leave this group."))
        return
    vote = next((entry for entry in conversation.info.votes if entry.did == member.did), None)
    if vote is not None and vote.voted:
        chat.report(Printable(f"You have already voted: {group_rules.removal_state(vote, who)}."))
        return

    async def request() -> None:
        vote = await chat.link.request("remove_member", RemoveMemberParams(conversation.info.id, member.did), VoteInfo)
        chat.report(printable_line(group_rules.removal_state(vote, who) + "."))
        await chat.feed.refresh()

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(request())

    if "remove" not in member.allowed_actions:  # the agent says why
        chat.run_request(request())
        return
    policy, gone = conversation.info.policy, f"{who} can only come back with a new invitation."
    if policy.remove == "quorum":
        needed = min(policy.quorum, max(len(conversation.members) - 1, 1))
        question = f"Vote to remove {who} from {group}? It takes {group_rules.number(needed)} votes. {gone}"
        chat.app.push_screen(ConfirmDialog(printable_line(question), "Vote", "Cancel"), answered)
    else:
        chat.app.push_screen(
            ConfirmDialog(printable_line(f"Remove {who} from {group}? {gone}"), "Remove", "Cancel"), answered
        )


def transfer(chat: ChatView, argument: str) -> None:
    conversation = open_conversation(chat)
    member = find_member(chat, conversation, "transfer", argument) if conversation else None
    if conversation is not None and member is not None:
        _transfer(chat, conversation, member)


def _transfer(chat: ChatView, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if "owner" not in member.allowed_actions:  # the agent explains why
        chat.run_request(_change_role(chat, conversation, member.did, "owner"))
        return

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(_change_role(chat, conversation, member.did, "owner"))

    question = group_rules.transfer_question(name_of(member.nick), conversation.name)
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Hand over", "Cancel"), answered)


def ignore(chat: ChatView, argument: str) -> None:
    if argument:
        _ignore(chat, argument, True)
    elif (conversation := open_conversation(chat)) is not None:
        chat.run_request(_list_ignored(chat, conversation.info.id))


async def _list_ignored(chat: ChatView, group: str) -> None:
    found = await chat.link.request("list_ignored", GroupParams(group), list[IgnoredMember])
    names = [name_of(member.nick) for member in found]
    listed = f"You ignore {', '.join(names)}. /unignore NAME ends it." if names else "You ignore no member here."
    chat.report(printable_line(listed))


def unignore(chat: ChatView, argument: str) -> None:
    _ignore(chat, argument, False)


def _ignore(chat: ChatView, argument: str, ignored: bool) -> None:
    conversation = open_conversation(chat)
    command = "ignore" if ignored else "unignore"
    if conversation is None:
        return
    wanted = argument
    if not argument or conversation.members_named(argument):
        member = find_member(chat, conversation, command, argument)
        if member is None:
            return
        wanted = member.did
    # Else it may have left: the agent knows former members too.
    params = IgnoreMemberParams(conversation.info.id, wanted, ignored)
    chat.run_request(chat.link.request("ignore_member", params, IgnoredMember))


def accuse(chat: ChatView, argument: str) -> None:
    conversation = open_conversation(chat)
    member = find_member(chat, conversation, "accuse", argument) if conversation else None
    if conversation is not None and member is not None:
        _accuse(chat, conversation, member)


def _accuse(chat: ChatView, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    who = name_of(member.nick)

    async def ask() -> None:
        params = AccuseParams(conversation.info.id, member.did, check=True)
        await chat.link.request("accuse_member", params, CaseInfo)
        chat.app.push_screen(ConfirmDialog(printable_line(question), "Accuse", "Cancel"), answered)

    async def put() -> None:
        await chat.link.request("accuse_member", AccuseParams(conversation.info.id, member.did), CaseInfo)
        chat.report(
            Printable(f"The accusation of {who} is published when the witnesses answer. /cases shows its state.")
        )

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(put())

    question = (
        f"Accuse {who} in the log of {conversation.name} of withholding a message from you? This cannot be undone."
    )
    chat.run_request(ask())


def role(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return
    name, _, wanted = argument.rpartition(" ")
    rank = next((entry for entry in ASSIGNABLE_ROLES if entry == wanted.casefold()), None)
    if rank is None:
        report_usage(chat, "role", "bob reader")
        return
    member = find_member(chat, conversation, "role", name.strip()) if name.strip() else None
    if member is not None or not name.strip():
        chat.run_request(_change_role(chat, conversation, member.did if member else "", rank))


async def _change_role(chat: ChatView, conversation: Conversation, did: str, rank: str) -> None:
    known = conversation.members.get(did or conversation.info.me)
    changed = await chat.link.request("set_role", SetRoleParams(conversation.info.id, rank, did), MemberInfo)
    who = "You are" if changed.connection == "self" else f"{name_of(changed.nick)} is"
    since = "already" if known is not None and known.role == changed.role else "now"
    chat.report(Printable(f"{who} {since} {ROLES.get(changed.role, name_of(changed.role))} here."))
    await chat.feed.refresh()


def rename(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return
    if not argument:
        report_usage(chat, "rename", "bob")
        return

    async def change() -> None:
        before = conversation.info.nick
        info = await chat.link.request(
            "set_display_name", SetDisplayNameParams(conversation.info.id, argument), GroupInfo
        )
        since = "already" if info.nick == before else "now"
        chat.report(Printable(f"{name_of(info.nick)} is {since} your name here."))
        await chat.feed.refresh()

    chat.run_request(change())
