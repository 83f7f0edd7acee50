"""What the commands about members do: requests, verify, remove, role and rename; and news of members, as they come.

The screens are imported where they are opened: the first frame has none of them.
"""

from zerochat.presentation import group_rules
from zerochat.rpc import (
    AccuseParams,
    AnswerParams,
    CaseInfo,
    DisagreementNews,
    DismissParams,
    GroupInfo,
    MemberInfo,
    RemovedNews,
    RemoveParams,
    RenameParams,
    RequestInfo,
    RequestNews,
    RoleParams,
    SeatingNews,
    TrustNews,
    VoteInfo,
    WordsInfo,
    WordsParams,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions import verifying
from zerochat.tui.chat_view import Board
from zerochat.tui.messages.events import ROLES
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed import GroupNews
from zerochat.tui.state.hints import NO_GROUP
from zerochat.tui.style.lookalikes import deceptive
from zerochat.tui.style.text import name_of

GIVEN = ("reader", "writer", "admin")
"""The roles that one member can give another."""


# --- news -----------------------------------------------------------------------------------------------------------


def show(chat: Board, news: GroupNews) -> None:
    """Say what has happened to the members of a group. What stands in its lists and its log is drawn from those."""
    conversation = chat.conversations.by_id.get(news.group)
    name = conversation.name if conversation else Printable("a group")
    here = conversation is not None and conversation is chat.conversations.open
    match news:
        case RequestNews(nick=nick, state="asked") if not (here and chat.on_top):
            chat.tell(Printable(f"{name_of(nick)} asks to join {name}." + (" Esc, then F4 answers." if here else "")))
        case SeatingNews(nick=nick, connected=connected, members=members) if here:
            chat.flash(Printable(f"{name_of(nick)}: {connected}/{members} members connected."))
        case RemovedNews(by=by, nick=nick, voters=voters):
            known = nick and not (conversation and by == conversation.info.me)
            out_by = [name_of(one) for one in voters or [nick]] if known else []
            chat.tell(printable_line(f"You are no longer in {name}: {group_rules.why_out(out_by)}."), trouble=True)
        case TrustNews(member=did, nick=nick, trust="changed"):
            who = name_of(nick)
            if conversation is not None:
                key = conversation.timeline.remark(did, who, Printable("is not the one you verified"))
                chat.rows_changed(conversation, [key] if key else [])
            if not here:
                chat.tell(Printable(f"{who} in {name} is not the {who} you verified."), trouble=True)
        case DisagreementNews(text=text) if conversation is not None:
            if not here:  # there the banner says it, as long as it holds
                chat.tell(Printable(f"{name}: {printable(text)}"), trouble=True)
        case _:
            pass


# --- who is meant ---------------------------------------------------------------------------------------------------


def _open(chat: Board) -> Conversation | None:
    if chat.conversations.open is None:
        chat.complain(NO_GROUP)
    return chat.conversations.open


def _member(chat: Board, conversation: Conversation, command: str, name: str) -> MemberInfo | None:
    """The one member with this name; a sentence, and None, where that is not one."""
    found = conversation.called(name)
    if len(found) == 1:
        return found[0]
    if not name:
        chat.complain(Printable(f"/{command} takes the name of a member, as in /{command} bob. F2 shows them."))
    elif found:
        chat.complain(Printable(f"{len(found)} here are called {name_of(name)}: Tab adds the end of the key."))
    else:
        chat.complain(Printable(f"Nobody here is called {name_of(name)}. F2 shows the members."))
    return None


def show_member(chat: Board, did: str) -> None:
    """Open the sheet about a member of the open group."""
    from zerochat.tui.dialogs.member import MemberScreen

    conversation = chat.conversations.open
    member = conversation.member(did) if conversation else None
    if conversation is None or member is None:
        return
    conversation.alarms.pop(did, None)
    chat.alarms_changed()

    def now() -> MemberInfo | None:
        return conversation.member(did)

    def act(what: str) -> None:
        if (one := now()) is not None:
            _act(chat, conversation, one, what)

    def doubt() -> str:
        return deceptive({one.did: name_of(one.nick) for one in conversation.members}).get(did, "")

    screen = MemberScreen(conversation.names, now, lambda: conversation.info, act, doubt)

    async def words() -> None:
        known = await chat.link.ask("words", WordsParams(conversation.info.id, did), WordsInfo)
        screen.take_words(known.words)

    chat.open_sheet(screen, screen.renew)
    if member.connection != "self":
        chat.attempt(words())


def _act(chat: Board, conversation: Conversation, member: MemberInfo, what: str) -> None:
    """What a key on the sheet of a member does."""
    match what:
        case "type":
            verifying.type_words(chat, conversation, member)
        case "sight":
            verifying.mark(chat, conversation, member, True, "Have you seen that all eight words are the same?")
        case "unmark":
            verifying.mark(chat, conversation, member, False, f"Forget that you verified {name_of(member.nick)}?")
        case "remove":
            _remove(chat, conversation, member)
        case "dismiss":
            chat.attempt(_dismiss(chat, conversation, member.did))
        case "reader" | "writer" | "admin":
            chat.attempt(_change_role(chat, conversation, member.did, what))
        case _:
            raise AssertionError(what)


# --- coming in ------------------------------------------------------------------------------------------------------


def requests(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.requests import RequestsScreen

    conversation = _open(chat)
    if conversation is None:
        return
    if not conversation.info.requests:
        elsewhere = chat.conversations.asking_elsewhere()
        there = f" {len(elsewhere)} elsewhere: Alt+A." if elsewhere else ""
        asks = conversation.info.policy.join == "ask"
        why = "Nobody asks to join here." if asks else "Nobody has to ask here: an invitation is enough."
        chat.flash(Printable(why + there))
        return

    async def answer(one: RequestInfo, admit: bool) -> None:
        await chat.link.ask("answer", AnswerParams(one.group, one.did, admit, one.nick, one.role), GroupInfo)
        await chat.feed.refresh()

    screen = RequestsScreen(conversation.name, lambda: conversation.info.requests, answer)
    chat.open_sheet(screen, screen.renew)


# --- verifying ------------------------------------------------------------------------------------------------------


def verify(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    if conversation is None:
        return
    if not rest:
        chat.attempt(verifying.show_group_words(chat, conversation))
    elif (member := _member(chat, conversation, "verify", rest)) is not None:
        show_member(chat, member.did)


def dismiss(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    if conversation is None:
        return
    if not conversation.info.disagreements:
        chat.flash(Printable("There is no warning here to be dismissed."))
        return
    chat.attempt(_dismiss(chat, conversation, ""))


async def _dismiss(chat: Board, conversation: Conversation, did: str) -> None:
    await chat.link.ask("dismiss", DismissParams(conversation.info.id, did), GroupInfo)
    await chat.feed.refresh()
    chat.flash(Printable("You are warned of it no more. F2 still marks whom it is about."))


# --- changing -------------------------------------------------------------------------------------------------------


def remove(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    member = _member(chat, conversation, "remove", rest) if conversation else None
    if conversation is not None and member is not None:
        _remove(chat, conversation, member)


def _remove(chat: Board, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    who, group = name_of(member.nick), conversation.name
    if member.connection == "self":
        chat.complain(Printable("That is you: /leave leaves this group."))
        return
    vote = next((one for one in conversation.info.votes if one.did == member.did), None)
    if vote is not None and vote.mine:
        chat.tell(Printable(f"You had voted already: {group_rules.removal(vote, who)}."))
        return

    async def put_out() -> None:
        vote = await chat.link.ask("remove", RemoveParams(conversation.info.id, member.did), VoteInfo)
        chat.tell(printable_line(group_rules.removal(vote, who) + "."))
        await chat.feed.refresh()

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(put_out())

    policy, gone = conversation.info.policy, "There is no way back but a new invitation."
    if policy.remove == "quorum":
        needed = min(policy.quorum, max(len(conversation.members) - 1, 1))
        question = f"Vote for putting {who} out of {group}? It takes {group_rules.number(needed)} of you. {gone}"
        chat.app.push_screen(Confirm(printable_line(question), "Vote", "No"), answered)
    else:
        chat.app.push_screen(Confirm(printable_line(f"Put {who} out of {group}? {gone}"), "Put out", "No"), answered)


def accuse(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    member = _member(chat, conversation, "accuse", rest) if conversation else None
    if conversation is not None and member is not None:
        _accuse(chat, conversation, member)


def _accuse(chat: Board, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    who = name_of(member.nick)

    async def put() -> None:
        await chat.link.ask("accuse", AccuseParams(conversation.info.id, member.did), CaseInfo)
        chat.tell(Printable(f"{who} is accused as soon as the witnesses answer. /cases shows what comes of it."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(put())

    question = f"Say in the log of {conversation.name}, for good, that {who} withholds a message from you?"
    chat.app.push_screen(Confirm(printable_line(question), "Accuse", "No"), answered)


def role(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    if conversation is None:
        return
    name, _, wanted = rest.rpartition(" ")
    rank = next((one for one in GIVEN if one == wanted.casefold()), None)
    if rank is None:
        chat.complain(Printable("/role takes reader, writer or admin, behind a name (none: you): /role bob reader"))
        return
    member = _member(chat, conversation, "role", name.strip()) if name.strip() else None
    if member is not None or not name.strip():
        chat.attempt(_change_role(chat, conversation, member.did if member else "", rank))


async def _change_role(chat: Board, conversation: Conversation, did: str, rank: str) -> None:
    before = {one.did: one.role for one in conversation.members}
    changed = await chat.link.ask("role", RoleParams(conversation.info.id, rank, did), MemberInfo)
    who = "You are" if changed.connection == "self" else f"{name_of(changed.nick)} is"
    since = "already" if before.get(changed.did) == changed.role else "now"
    chat.tell(Printable(f"{who} {ROLES.get(changed.role, name_of(changed.role))} here {since}."))
    await chat.feed.refresh()


def rename(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    if conversation is None:
        return
    if not rest:
        chat.complain(Printable("/rename takes the name that you want to have in this group: /rename ann"))
        return

    async def change() -> None:
        before = conversation.info.nick
        info = await chat.link.ask("rename", RenameParams(conversation.info.id, rest), GroupInfo)
        since = "already" if info.nick == before else "now"
        chat.tell(Printable(f"You are called {name_of(info.nick)} here {since}."))
        await chat.feed.refresh()

    chat.attempt(change())
