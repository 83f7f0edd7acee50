"""Evidence of a message or a group, cases, and saving proofs to files."""

import os
from contextlib import suppress
from pathlib import Path

from textual.content import Content

from zerochat.agent.proofs.proof_file import ID_CHARS, Written, counted, place_of, write_proof
from zerochat.errors import LocalError
from zerochat.presentation import disputes, proofs, tlog
from zerochat.rpc import (
    CaseInfo,
    Event,
    Evidence,
    EvidenceParams,
    GroupParams,
    ProofLines,
    ProofParams,
    TlogTermsNotification,
)
from zerochat.slash_commands import message_and_path
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions.targets import open_conversation, report_usage, target_message
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.paths import path_of
from zerochat.tui.messages.events import text_of
from zerochat.tui.messages.row import Row
from zerochat.tui.state.agent_link import AgentError, in_thread
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.feed_listener import TlogNotification
from zerochat.tui.style.text import clock_of, name_of

TEXT_CELLS_MAX = 40
"""Width of a quoted message in one line."""
SYMBOLS = {"signed": "✓", "unshown": "~", "told": "·", "none": " "}


# --- news -------------------------------------------------------------------------------------------------------------


def on_notification(chat: ChatView, notification: TlogNotification) -> None:
    """Report a notification about a group's transparency log."""
    conversation = chat.conversations.by_id.get(notification.group)
    if conversation is None:
        return
    here = conversation is chat.conversations.open
    sentence = printable_line(tlog.notification_sentence(notification, name_of, clock_of))
    trouble = not isinstance(notification, TlogTermsNotification)
    if here and isinstance(notification, TlogTermsNotification) and notification.operator is not None:
        return  # the conversation has a row for it
    chat.report(sentence if here else Printable(f"{conversation.name}: {sentence}"), trouble=trouble)


# --- showing ----------------------------------------------------------------------------------------------------------


def evidence(chat: ChatView, argument: str) -> None:
    """`/evidence [MSG]`: of that or the selected message, else of the group."""
    if (conversation := open_conversation(chat)) is None:
        return
    row = chat.pane.selected_row
    _open(chat, conversation, argument or (row.key[2] if row is not None else ""))


def show_of_message(chat: ChatView, conversation: Conversation, row: Row) -> None:
    """Show the evidence for this message."""
    _open(chat, conversation, row.key[2])


def _open(chat: ChatView, conversation: Conversation, id: str) -> None:
    from zerochat.tui.dialogs.evidence import EvidenceDialog

    async def load() -> tuple[Printable, Content]:
        return _content(conversation, await _fetch(chat, conversation, id))

    async def show() -> None:
        found = await _fetch(chat, conversation, id)
        about = found.message

        def write() -> None:
            if about is not None:
                _ask_path(chat, conversation, about.event)

        provable = about is not None and about.signed and not about.why
        dialog = EvidenceDialog(*_content(conversation, found), reload=load, write=write if provable else None)
        chat.app.push_screen(dialog)

    chat.run_request(show())


async def _fetch(chat: ChatView, conversation: Conversation, id: str) -> Evidence:
    return await chat.link.request("get_evidence", EvidenceParams(conversation.info.id, id), Evidence)


def _content(conversation: Conversation, found: Evidence) -> tuple[Printable, Content]:
    from zerochat.tui.dialogs.dialog import rows

    label = conversation.names.label
    if found.message is not None:
        about = found.message
        parts = [Content(summary_of(about.event)), Content("")]
        holders = [
            (SYMBOLS[member.grade], f"{label(member.did)}  {proofs.grade_of(member, clock_of)}")
            for member in about.members
        ]
        parts += [rows(holders, 1), Content("")] if holders else []
        sentences = proofs.of_message(about, name_of, clock_of)
        return Printable("Evidence for this message"), _paragraphs(parts, sentences)
    me = conversation.info.me
    first, *argument = proofs.of_group(found)
    parts = [Content(printable_line(first))]
    streams = [
        (label(entry.did, 20) + (" (you)" if entry.did == me else ""), text)
        for entry, text in proofs.of_streams(found, clock_of)
    ]
    parts += [Content(""), rows(streams, 16), Content("")] if streams else []
    if found.log is not None:
        lines = tlog.facts(found.log, name_of, clock_of)
        parts += [rows([(left, printable_line(right)) for left, right in lines], 16), Content("")] if lines else []
        argument = [*tlog.sentences(found.log, name_of), *argument]
    return printable_line(f"Evidence in {conversation.name}"), _paragraphs(parts, argument)


def cases(chat: ChatView, argument: str) -> None:
    """`/cases`: the accusations in the open group and their outcomes, refreshed while shown."""
    from zerochat.tui.dialogs.dialog import open_live, rows

    if (conversation := open_conversation(chat)) is None:
        return

    async def load() -> tuple[Printable, Content]:
        found = await chat.link.request("list_cases", GroupParams(conversation.info.id), list[CaseInfo])
        lines = [
            (
                printable_line(disputes.charge(entry, name_of)),
                printable_line(disputes.outcome(entry, name_of, clock_of)),
            )
            for entry in found
        ]
        return printable_line(f"Cases in {conversation.name}"), rows(lines, 24) if lines else Content(disputes.NONE)

    chat.run_request(open_live(chat.app, load))


def _paragraphs(parts: list[Content], sentences: list[str]) -> Content:
    return Content("\n").join([*parts, *(Content(printable_line(sentence)) for sentence in sentences)])


def summary_of(event: Event) -> Printable:
    """The author and the beginning of the text."""
    text = printable_line(text_of(event) or "", TEXT_CELLS_MAX)
    who = "You" if event.self else name_of(event.author.nick)
    separator = ": " if event.type == "message" else " "
    return Printable(f"{who}{separator}{text or f'({printable_line(event.type, 24)})'}")


# --- writing ----------------------------------------------------------------------------------------------------------


def save_proof(chat: ChatView, argument: str) -> None:
    """`/proof [MSG] PATH`: of that or the selected message, else of the newest."""
    if (conversation := open_conversation(chat)) is None:
        return
    id, path = message_and_path(argument)
    if not path:
        report_usage(chat, "proof", f"{id} message.zproof" if id else "~/message.zproof")
        return
    if not id:
        found = target_message(chat, lambda row: row.kind == "post", "")
        if found is None:
            return
        id = found[1].key[2]

    async def write() -> None:
        about = (await _fetch(chat, conversation, id)).message
        if about is not None:
            await _write(chat, conversation, about.event, path)

    conversation.remember_text(f"/proof {argument}")
    chat.run_request(write())


def _ask_path(chat: ChatView, conversation: Conversation, event: Event) -> None:
    """Ask where to save the proof."""
    from zerochat.agent.files.saving import downloads
    from zerochat.tui.dialogs.dialog import InputDialog

    folder = downloads(os.environ)

    async def write(path: str) -> None:
        if Path(path_of(path)).parent == folder:
            with suppress(OSError):  # writing the file reports the error
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        await _write(chat, conversation, event, path)

    hint = Printable("A new file or a folder; existing files are kept. Enter saves, Esc cancels.")
    prefill = printable_line(str(folder / f"{_file_stem(conversation, event)}.zproof"))
    chat.app.push_screen(InputDialog(Printable("Save the proof as"), hint, submit=write, prefill=prefill))


def _file_stem(conversation: Conversation, event: Event) -> str:
    return place_of(Path(), f"{name_of(conversation.info.name)}-{event.id[:ID_CHARS]}").stem


async def _write(chat: ChatView, conversation: Conversation, event: Event, wanted: str) -> None:
    """Write the proof and report its path and contents. Raises AgentError."""
    path = place_of(Path(path_of(wanted)), _file_stem(conversation, event))
    page = await chat.link.request("get_proof", ProofParams(conversation.info.id, event.id), ProofLines)
    made: list[Written] = []
    try:
        await in_thread(lambda: made.append(write_proof(path, [page])))
    except LocalError as error:
        raise AgentError(error.sentence()) from None
    (written,) = made
    more = (
        f" {written.left_out:,} more member{'s' * (written.left_out != 1)} cannot be proven to have it."
        if written.left_out
        else ""
    )
    chat.report(
        printable(
            f"{summary_of(event)}\nProof saved to {printable_line(str(written.path), 400)}:"
            f" {counted(written.messages, written.signers)}{more} {proofs.PASSED_ON}"
        )
    )
