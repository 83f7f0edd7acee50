"""What can be proven, and proofs: asked of the agent, shown, and written into a file of the person's."""

import os
from contextlib import suppress
from pathlib import Path

from textual.content import Content

from zerochat.agent.proofs.proof_file import ID_CHARS, Written, counted, place_of, write_proof
from zerochat.errors import LocalError
from zerochat.presentation import disputes, proofs, tlog
from zerochat.rpc import CaseInfo, Event, Evidence, EvidenceParams, GroupParams, LogKeptNews, ProofLines, ProofParams
from zerochat.slash_commands import message_and_path
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.target import message_meant
from zerochat.tui.chat_view import Board
from zerochat.tui.composer.paths import path_of
from zerochat.tui.messages.row import Row
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed import KeepingNews
from zerochat.tui.state.hints import NO_GROUP
from zerochat.tui.style.text import clock_of, name_of

TEXT_CELLS_MAX = 40
"""Of what somebody has said, in a line about it."""
SIGNS = {"signed": "✓", "unshown": "~", "told": "·", "none": " "}


# --- news -------------------------------------------------------------------------------------------------------------


def show(chat: Board, news: KeepingNews) -> None:
    """Say what has become of a group's log. Who keeps it stands in the conversation too."""
    conversation = chat.conversations.by_id.get(news.group)
    if conversation is None:
        return
    here = conversation is chat.conversations.open
    sentence = printable_line(tlog.news(news, name_of, clock_of))
    trouble = not isinstance(news, LogKeptNews)
    if here and isinstance(news, LogKeptNews) and news.operator is not None:
        return  # its line is there
    chat.tell(sentence if here else Printable(f"{conversation.name}: {sentence}"), trouble=trouble)


# --- showing ----------------------------------------------------------------------------------------------------------


def evidence(chat: Board, rest: str) -> None:
    """`/evidence`: of the message that is selected, else of the group; `/evidence MSG`."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    row = chat.pane.selected_row
    _open(chat, conversation, rest or (row.key[2] if row is not None else ""))


def of_message(chat: Board, conversation: Conversation, row: Row) -> None:
    """What can be proven of this message."""
    _open(chat, conversation, row.key[2])


def _open(chat: Board, conversation: Conversation, id: str) -> None:
    from zerochat.tui.dialogs.evidence import EvidenceSheet

    async def ask() -> tuple[Printable, Content]:
        return _told(conversation, await _asked(chat, conversation, id))

    async def show() -> None:
        found = await _asked(chat, conversation, id)
        about = found.message

        def write() -> None:
            if about is not None:
                _ask_where(chat, conversation, about.event)

        provable = about is not None and about.signed and not about.why
        sheet = EvidenceSheet(*_told(conversation, found), again=ask, write=write if provable else None)
        chat.app.push_screen(sheet)

    chat.attempt(show())


async def _asked(chat: Board, conversation: Conversation, id: str) -> Evidence:
    return await chat.link.ask("evidence", EvidenceParams(conversation.info.id, id), Evidence)


def _told(conversation: Conversation, found: Evidence) -> tuple[Printable, Content]:
    from zerochat.tui.dialogs.dialog import rows

    label = conversation.names.label
    if found.message is not None:
        about = found.message
        parts = [Content(said_of(about.event)), Content("")]
        holders = [(SIGNS[one.grade], f"{label(one.did)}  {proofs.grade_of(one, clock_of)}") for one in about.members]
        parts += [rows(holders, 1), Content("")] if holders else []
        sentences = proofs.of_message(about, name_of, clock_of)
        return Printable("What can be proven of it"), _paragraphs(parts, sentences)
    me = conversation.info.me
    first, *rest = proofs.of_group(found)
    parts = [Content(printable_line(first))]
    streams = [
        (label(one.did, 20) + (" (you)" if one.did == me else ""), said)
        for one, said in proofs.of_streams(found, clock_of)
    ]
    parts += [Content(""), rows(streams, 16), Content("")] if streams else []
    if found.log is not None:
        told = tlog.facts(found.log, name_of, clock_of)
        parts += [rows([(left, printable_line(right)) for left, right in told], 16), Content("")] if told else []
        rest = [*tlog.sentences(found.log, name_of), *rest]
    return printable_line(f"What can be proven in {conversation.name}"), _paragraphs(parts, rest)


def cases(chat: Board, rest: str) -> None:
    """`/cases`: who is accused of what in the open group, and what has come of it; as it is, for as long as it is
    shown."""
    from zerochat.tui.dialogs.dialog import open_live, rows

    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return

    async def ask() -> tuple[Printable, Content]:
        found = await chat.link.ask("cases", GroupParams(conversation.info.id), list[CaseInfo])
        told = [
            (printable_line(disputes.charge(one, name_of)), printable_line(disputes.outcome(one, name_of, clock_of)))
            for one in found
        ]
        return printable_line(f"Cases in {conversation.name}"), rows(told, 24) if told else Content(disputes.NONE)

    chat.attempt(open_live(chat.app, ask))


def _paragraphs(parts: list[Content], sentences: list[str]) -> Content:
    return Content("\n").join([*parts, *(Content(printable_line(one)) for one in sentences)])


def said_of(event: Event) -> Printable:
    """Whose it is, and the beginning of what was said."""
    text = printable_line(str(event.body.get("text", "")), TEXT_CELLS_MAX)
    who = "You" if event.self else name_of(event.author.nick)
    return Printable(f"{who}: {text}" if text else f"{who}: ({printable_line(event.type, 24)})")


# --- writing ----------------------------------------------------------------------------------------------------------


def proof(chat: Board, rest: str) -> None:
    """`/proof PATH` of the message that is selected, else of the newest; `/proof MSG PATH`."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    id, path = message_and_path(rest)
    if not path:
        if id:
            chat.complain(printable_line(f"/proof takes a path too: /proof {id} message.zproof, or a folder."))
        else:
            chat.complain(Printable("/proof takes where to write it: /proof ~/message.zproof, or a folder."))
        return
    if not id:
        found = message_meant(chat, lambda row: row.kind == "post", "")
        if found is None:
            return
        id = found[1].key[2]

    async def write() -> None:
        about = (await _asked(chat, conversation, id)).message
        if about is not None:
            await _write(chat, conversation, about.event, path)

    conversation.said(f"/proof {rest}")
    chat.attempt(write())


def _ask_where(chat: Board, conversation: Conversation, event: Event) -> None:
    """Have the person say where the proof goes."""
    from zerochat.agent.files.saving import downloads
    from zerochat.tui.dialogs.dialog import Ask

    folder = downloads(os.environ)

    async def write(path: str) -> None:
        if Path(path_of(path)).parent == folder:
            with suppress(OSError):  # then the file cannot be made either, and that is said
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await _write(chat, conversation, event, path)

    hint = Printable("A new file, or a folder; nothing is overwritten. Enter writes it, Esc closes.")
    begun = printable_line(str(folder / f"{_name(conversation, event)}.zproof"))
    chat.app.push_screen(Ask(Printable("Where to write the proof"), hint, deed=write, begun=begun))


def _name(conversation: Conversation, event: Event) -> str:
    return place_of(Path(), f"{name_of(conversation.info.name)}-{event.id[:ID_CHARS]}").stem


async def _write(chat: Board, conversation: Conversation, event: Event, wanted: str) -> None:
    """Write it, and say what is in it and where. Raises AgentError, with the sentence for the person."""
    path = place_of(Path(path_of(wanted)), _name(conversation, event))
    page = await chat.link.ask("proof", ProofParams(conversation.info.id, event.id), ProofLines)
    made: list[Written] = []
    try:
        await in_thread(lambda: made.append(write_proof(path, [page])))
    except LocalError as error:
        raise AgentError(error.sentence()) from None
    (written,) = made
    more = f" {written.left_out:,} more cannot be shown to have it." if written.left_out else ""
    chat.tell(
        printable(
            f"{said_of(event)}\nProof written to {printable_line(str(written.path), 400)}:"
            f" {counted(written.messages, written.signers)}{more} {proofs.PASSED_ON}"
        )
    )
