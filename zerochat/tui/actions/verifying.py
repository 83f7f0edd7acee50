"""Words that two people compare, and the mark that a member gets by it."""

from textual.content import Content

from zerochat.presentation import group_rules
from zerochat.rpc import MemberInfo, VerifyParams, WordsInfo, WordsParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.style.text import name_of

STATES = {"verified": "✓ verified", "unverified": "not verified", "changed": "! CHANGED: was somebody else"}


async def show_group_words(chat: Board, conversation: Conversation) -> None:
    """Everybody sees the same words who sees the same members; and whom of them we know."""
    from zerochat.tui.dialogs.dialog import Sheet, rows
    from zerochat.tui.dialogs.requests import in_lines

    known = await chat.link.ask("words", WordsParams(conversation.info.id), WordsInfo)
    conversation.alarms.pop("", None)
    chat.alarms_changed()
    others = [one for one in conversation.members if one.connection != "self"]
    states = [(conversation.names.label(one.did, 20), _state(one)) for one in others]
    body = [
        *(Content.styled(line, "bold") for line in in_lines(known.words)),
        Content("Whoever sees the same members sees these words. Compare all eight on a call, or in one room."),
        Content(""),
        rows(states, 20) if states else Content("Nobody else is here yet."),
        Content(""),
        Content.styled("/verify NAME compares with one of them.", "$text-muted"),
    ]
    chat.app.push_screen(Sheet(Printable(f"Words of {conversation.name}"), Content("\n").join(body)))


def _state(member: MemberInfo) -> str:
    forked = ", has signed two histories" if member.forked else ""
    return STATES.get(member.trust, "not verified") + forked


def type_words(chat: Board, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import Ask

    who = name_of(member.nick)

    async def compare(said: str) -> None:
        params = WordsParams(conversation.info.id, member.did, said)
        known = await chat.link.ask("words", params, WordsInfo)
        if not known.same:
            raise AgentError(
                f"The words differ{group_rules.places(known.differ)}. Somebody was misheard, or somebody is between you and"
                f" {who}: do not trust what is said here before you have compared them once more."
            )
        await set_mark(chat, conversation, member.did, True)

    hint = Printable("All eight; four letters of each do. Enter compares, Esc closes.")
    chat.app.push_screen(Ask(Printable(f"Type what {who} reads to you"), hint, deed=compare))


def mark(chat: Board, conversation: Conversation, member: MemberInfo, verified: bool, question: str) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(set_mark(chat, conversation, member.did, verified))

    yes, no = ("Yes, all eight", "No") if verified else ("Forget", "Keep")
    chat.app.push_screen(Confirm(printable_line(question), yes, no), answered)


async def set_mark(chat: Board, conversation: Conversation, did: str, verified: bool) -> None:
    await chat.link.ask("verify", VerifyParams(conversation.info.id, did, verified), MemberInfo)
    await chat.feed.refresh()
