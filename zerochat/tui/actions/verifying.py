"""Verification of members by comparing safety words."""

from textual.content import Content

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.presentation import group_rules
from zerochat.rpc import MemberInfo, SafetyWords, SafetyWordsParams, VerifyMemberParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.style.text import name_of

TRUST_TEXTS = {"verified": "✓ verified", "unverified": "not verified", "changed": "! KEY CHANGED"}


async def show_group_words(chat: ChatView, conversation: Conversation) -> None:
    """Show the words of the group's member list, and the verification state of each member."""
    from zerochat.tui.dialogs.dialog import TextDialog, rows
    from zerochat.tui.dialogs.requests import word_lines

    known = await chat.link.request("get_safety_words", SafetyWordsParams(conversation.info.id), SafetyWords)
    conversation.warnings_by_member.pop("", None)
    chat.warnings_changed()
    page, more = conversation.members.page("", MEMBER_PAGE_MAX)
    states = [(conversation.names.label(one.did, 20), _state(one)) for one in page if one.connection != "self"]
    if more:
        states.append((Printable("…"), f"{more:,} more members"))
    body = [
        *(Content.styled(line, "bold") for line in word_lines(known.words)),
        Content("All who see the same members see these words. Compare all eight on a call or in person."),
        Content(""),
        rows(states, 20) if states else Content("There are no other members yet."),
        Content(""),
        Content.styled("/verify NAME compares words with one member.", "$text-muted"),
    ]
    chat.app.push_screen(TextDialog(Printable(f"Safety words of {conversation.name}"), Content("\n").join(body)))


def _state(member: MemberInfo) -> str:
    forked = ", signed two histories" if member.forked else ""
    return TRUST_TEXTS.get(member.trust, "not verified") + forked


def type_words(chat: ChatView, conversation: Conversation, member: MemberInfo) -> None:
    from zerochat.tui.dialogs.dialog import InputDialog

    who = name_of(member.nick)

    async def compare(typed: str) -> None:
        params = SafetyWordsParams(conversation.info.id, member.did, typed)
        known = await chat.link.request("get_safety_words", params, SafetyWords)
        if not known.match:
            raise AgentError(
                f"The words differ{group_rules.positions_text(known.mismatches)}. Either a word was misheard, or the"
                f" connection to {who} is intercepted: do not trust this conversation until all words match."
            )
        await set_mark(chat, conversation, member.did, True)

    hint = Printable("Type all eight words; the first four letters of each are enough. Enter compares, Esc cancels.")
    chat.app.push_screen(InputDialog(Printable(f"Type the words that {who} reads to you"), hint, submit=compare))


def confirm_mark(chat: ChatView, conversation: Conversation, member: MemberInfo, verified: bool, question: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(set_mark(chat, conversation, member.did, verified))

    yes, no = ("They match", "Cancel") if verified else ("Remove", "Cancel")
    chat.app.push_screen(ConfirmDialog(printable_line(question), yes, no), answered)


async def set_mark(chat: ChatView, conversation: Conversation, did: str, verified: bool) -> None:
    await chat.link.request("verify_member", VerifyMemberParams(conversation.info.id, did, verified), MemberInfo)
    await chat.feed.refresh()
