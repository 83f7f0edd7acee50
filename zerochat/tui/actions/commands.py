"""What the commands do: each asks the agent or opens a screen, and says what came of it.

The screens are imported where they are opened: the first frame has none of them.
"""

from collections.abc import Callable

from textual.content import Content

from zerochat.presentation import group_rules
from zerochat.presentation.history_rules import fetching
from zerochat.rpc import (
    CancelParams,
    Found,
    GroupInfo,
    GroupParams,
    Hit,
    InvitationInfo,
    InviteParams,
    JoinParams,
    JoinStatus,
    NewParams,
    NoParams,
    OpenInvitation,
    RevokeParams,
    SearchParams,
    Status,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions import connections, delivery, files, jumps, members, messages, peers, sending, settings
from zerochat.tui.chat_view import Board
from zerochat.tui.panels.bars import short_view
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP, over
from zerochat.tui.style.text import clock_text, name_of


def run(chat: Board, name: str, rest: str) -> None:
    """Do the command `name`; the names are those of `commands.COMMANDS`."""
    _DEEDS[name](chat, rest)


def switch(chat: Board) -> None:
    from zerochat.tui.dialogs.switcher import Switcher

    chat.app.push_screen(Switcher(chat.conversations), chat.go)


# --- one for each command -------------------------------------------------------------------------------------------


def _help(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.help import help_sheet
    from zerochat.tui.style.keymaps import places_of_bindings

    nodes = (chat, chat.composer, chat.pane, chat.app)
    others = {place.owner for place in places_of_bindings()} - {type(node) for node in nodes}
    named = [kind for kind in others if kind.BINDING_GROUP_TITLE]
    sheets = sorted(named, key=lambda kind: str(kind.BINDING_GROUP_TITLE))
    if (sheet := help_sheet(*nodes, sheets=sheets, wanted=rest)) is not None:
        chat.app.push_screen(sheet)
    else:
        word = printable_line(rest, 24)
        chat.complain(Printable(f"Nothing here is called {word}: /help shows the commands, F1 the keys."))


def _new(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.create import CreateScreen

    async def create(params: NewParams) -> None:
        info = await chat.link.ask("new", params, GroupInfo)
        await chat.feed.refresh()
        chat.go(info.id)
        chat.flash(printable_line(f"{name_of(info.name)} is there. F3 or /invite brings people in."))
        _tell_signing(chat)

    # The sheet stays until the group is there and open: the next line that is typed must not go into another one.
    chat.app.push_screen(CreateScreen(create, printable_line(rest)))


def _join(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.join import JoinScreen

    async def ask(invitation: str, nick: str, role: str) -> JoinStatus:
        return await chat.link.ask("join", JoinParams(invitation, nick or None, role), JoinStatus)

    def closed(group: str | None) -> None:
        chat.tell_join = None

        async def show(group: str) -> None:
            await chat.feed.refresh()
            chat.go(group)
            _tell_signing(chat)

        if group:
            chat.attempt(show(group))

    async def cancel(join: str) -> JoinStatus:
        return await chat.link.ask("cancel", CancelParams(join), JoinStatus)

    running = None if rest else next(iter(chat.joins.values()), None)
    screen = JoinScreen(ask, cancel=cancel, nick=chat.nick, invitation=rest, running=running)
    chat.tell_join = screen.told
    chat.app.push_screen(screen, closed)


def _tell_signing(chat: Board) -> None:
    """What one gives up by speaking in the group that is open, where that is so: before anything is said."""
    conversation = chat.conversations.open
    if conversation is not None and (said := group_rules.signing(conversation.info)):
        chat.app.notify(f"{name_of(conversation.info.name)}: {said}", markup=False, timeout=20)


def _cancel(chat: Board, rest: str) -> None:
    chat.attempt(chat.link.ask("cancel", CancelParams(rest), JoinStatus))


def _invite(chat: Board, rest: str) -> None:
    conversation = _open(chat)
    if conversation is None:
        return
    words = rest.split()
    reader = words[-1:] == ["reader"]
    number = " ".join(words[:-1] if reader else words) or "1"
    if not (number.isascii() and number.isdigit() and len(number) <= 3 and int(number)):
        chat.complain(
            Printable("/invite takes how many may use it, 1 to 999, and reader to only read: /invite 3 reader")
        )
        return
    from zerochat.tui.dialogs.invite import InviteScreen

    async def make(role: str, history: str | None, expires_s: int) -> InvitationInfo:
        group = conversation.info.id
        params = InviteParams(group, expires_s=expires_s, uses=int(number), role=role, history=history)
        return await chat.link.ask("invite", params, InvitationInfo)

    def closed(_: None) -> None:
        chat.tell_invitation = None

    async def revoke(id: str) -> None:
        await chat.link.ask("revoke", RevokeParams(conversation.info.id, id), GroupInfo)

    ask = conversation.info.policy.join == "ask"
    screen = InviteScreen(
        conversation.name,
        make,
        lambda: run(chat, "invitations", ""),
        revoke,
        role="reader" if reader else "writer",
        history=conversation.info.policy.history,
        let_in=ask,
    )
    chat.tell_invitation = screen.told
    chat.app.push_screen(screen, closed)


def _invitations(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.invitations import InvitationsScreen

    conversation = _open(chat)
    if conversation is None:
        return
    group = conversation.info.id

    async def ask() -> list[OpenInvitation]:
        return await chat.link.ask("invitations", GroupParams(group), list[OpenInvitation])

    async def revoke(id: str) -> None:
        await chat.link.ask("revoke", RevokeParams(group, id), GroupInfo)
        await chat.feed.refresh()

    screen = InvitationsScreen(conversation.name, ask, revoke, lambda: run(chat, "invite", ""))
    chat.open_sheet(screen, screen.renew)


def _members(chat: Board, rest: str) -> None:
    if not chat.member_list.display:
        chat.toggle_members()
    chat.call_after_refresh(chat.member_list.focus)


def _status(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.dialog import open_live, rows

    async def ask() -> tuple[Printable, Content]:
        status = await chat.feed.status()
        chat.status_told(status)
        hours, seconds = divmod(status.uptime_s, 3600)
        facts = [
            ("profile", printable_line(status.profile)),
            ("name", name_of(status.nick)),
            ("agent", f"{printable_line(status.version)}, process {status.pid}, up {hours} h {seconds // 60} min"),
            *reached_at(status),
            ("gatekeeper", "dead: nobody new gets in, restart the agent" if status.closed else "on duty"),
            ("attention", printable_line(status.warning) or "nothing"),
        ]
        for one in status.joins:
            since = f"; since {clock_text(one.since)}" if one.since and one.phase != "failed" else ""
            until = f", until {clock_text(one.until)}" if one.until else ""
            label = f"joining {name_of(one.name)}" if one.name else "joining"
            facts.append((label, printable(one.text) + since + until))
        for group in status.groups:
            if group.state == "left":
                facts.append((printable_line(group.name, 12), "put out" if group.removed_by else "you left"))
                continue
            text = f"{group.state}, {group_rules.connected(group)}, {group.unacknowledged} not everywhere yet"
            facts.append((printable_line(group.name, 12), text))
            facts += [("", delivery.whole(group.completeness))] if group.completeness else []
            if group.beginning is not None and group.beginning.state == "fetching":
                facts.append(("", printable_line(fetching(group.beginning))))
            facts += [
                ("", f"keys {printable_line(group.keys, 20)}: how messages are encrypted"),
                ("", f"path {printable_line(group.path, 20)}: how they travel between the members"),
                ("", f"accountability {printable_line(group.accountability, 20)}: how it is known who has them"),
                ("", f"view {short_view(group)}: the same at all who see the same members"),
                *(("", printable_line(rule)) for rule in group_rules.rules_of(group.policy)),
            ]
        return Printable("Status"), rows(facts, 12)

    chat.attempt(open_live(chat.app, ask))


def reached_at(status: Status) -> list[tuple[str, str]]:
    """Where others reach the agent, and over whom."""
    if status.hidden:
        facts = [("hidden", "this agent only dials; nobody is told of an address")]
    else:
        facts = [("reached at", printable_line(status.pair)), ("publishes at", printable_line(status.queue))]
    facts += [("web", printable_line(uri)) for uri in status.web]
    return facts + [
        ("mediator", f"{connections.called(one)}: {connections.mediation(one)}") for one in status.mediators
    ]


def _leave(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    conversation = _open(chat)
    if conversation is None:
        return
    if conversation.info.state == "left":
        chat.tell(over(conversation.info))
        return

    async def leave() -> None:
        await chat.link.ask("leave", GroupParams(conversation.info.id), GroupInfo)
        await chat.feed.refresh()
        chat.rows_changed(conversation, None)

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(leave())

    question = (
        f"Leave {conversation.name}? What was said stays readable here; to speak again you need a new invitation."
    )
    if warning := group_rules.owner_leaves(conversation.info, conversation.members):
        question = f"{warning} {question}"
    chat.app.push_screen(Confirm(printable_line(question), "Leave", "Stay"), answered)


def _forget(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    conversation = _open(chat)
    if conversation is None:
        return
    if conversation.info.state != "left":
        chat.complain(Printable("You are in this group: /leave first, then it can be forgotten."))
        return

    async def forget() -> None:
        await chat.link.ask("forget", GroupParams(conversation.info.id), NoParams)
        await chat.feed.refresh()
        chat.flash(printable_line(f"{conversation.name} is forgotten."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(forget())

    question = f"Forget {conversation.name}? {group_rules.FORGET}"
    chat.app.push_screen(Confirm(printable_line(question), "Forget", "Keep"), answered)


def _resume(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.dialog import Confirm

    conversation = _open(chat)
    if conversation is None:
        return
    if not conversation.info.suspended:
        chat.complain(Printable("There is nothing to resume here."))
        return

    async def resume() -> None:
        await chat.link.ask("resume", GroupParams(conversation.info.id), GroupInfo)
        await chat.feed.refresh()
        chat.flash(printable_line(f"You can speak in {conversation.name} again."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.attempt(resume())

    question = f"Resume {conversation.name}? {group_rules.RESUME}"
    chat.app.push_screen(Confirm(printable_line(question), "Resume", "Wait"), answered)


def _search(chat: Board, rest: str) -> None:
    from zerochat.tui.dialogs.search import SearchScreen

    async def ask(params: SearchParams) -> Found:
        return await chat.link.ask("search", params, Found)

    def chosen(hit: Hit | None) -> None:
        if hit is not None:
            jumps.to_message(chat, hit.group, hit.id)

    groups = {id: one.name for id, one in chat.conversations.by_id.items()}
    chat.app.push_screen(SearchScreen(ask, groups, printable_line(rest)), chosen)


def _evidence(chat: Board, rest: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.evidence(chat, rest)


def _cases(chat: Board, rest: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.cases(chat, rest)


def _proof(chat: Board, rest: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.proof(chat, rest)


def _telemetry(chat: Board, rest: str) -> None:
    from zerochat.tui.actions.telemetry import telemetry

    telemetry(chat, rest)


def _quit(chat: Board, rest: str) -> None:
    chat.call_next(chat.app.run_action, "app.quit")


def _open(chat: Board) -> Conversation | None:
    if chat.conversations.open is None:
        chat.complain(NO_GROUP)
    return chat.conversations.open


def _me(chat: Board, rest: str) -> None:
    if not rest:
        chat.complain(Printable("/me takes what you do: /me waves"))
        return
    sending.say(chat, rest, action=True)


def _act(name: str) -> Callable[[Board, str], None]:
    """The command that does the act of this name."""
    return lambda chat, rest: messages.run(chat, name)


_DEEDS: dict[str, Callable[[Board, str], None]] = {
    "help": _help,
    "me": _me,
    "reply": messages.reply,
    "react": messages.react,
    "edit": messages.edit,
    "delete": _act("delete"),
    "copy": _act("copy"),
    "info": _act("info"),
    "send": files.send,
    "files": files.files,
    "get": files.get,
    "save": files.save,
    "topic": messages.topic,
    "new": _new,
    "join": _join,
    "cancel": _cancel,
    "invite": _invite,
    "invitations": _invitations,
    "requests": members.requests,
    "members": _members,
    "verify": members.verify,
    "role": members.role,
    "remove": members.remove,
    "dismiss": members.dismiss,
    "rename": members.rename,
    "delivery": delivery.delivery,
    "why": delivery.why,
    "evidence": _evidence,
    "proof": _proof,
    "accuse": members.accuse,
    "cases": _cases,
    "ping": peers.ping,
    "features": peers.features,
    "rotate": peers.rotate,
    "connections": connections.connections,
    "tell": connections.tell,
    "letters": connections.letters,
    "status": _status,
    "leave": _leave,
    "forget": _forget,
    "resume": _resume,
    "set": settings.change,
    "mute": settings.mute,
    "unmute": settings.unmute,
    "profile": settings.profile,
    "tour": settings.tour,
    "telemetry": _telemetry,
    "search": _search,
    "goto": jumps.goto,
    "quit": _quit,
}
