"""Handlers of the slash commands, by name.

Dialogs are imported when they are opened, so that the first frame does not wait for them.
"""

from collections.abc import Callable

from textual.content import Content

from zerochat.presentation import group_kinds, group_rules, keep_rules, upgrades
from zerochat.presentation.delivery import own_quota_text
from zerochat.presentation.history_rules import backfill_text
from zerochat.presentation.mediation import hidden_text
from zerochat.rpc import (
    CancelJoinParams,
    CreateGroupParams,
    CreateInvitationParams,
    Found,
    GroupInfo,
    GroupParams,
    HistoryStart,
    Hit,
    InvitationInfo,
    JoinGroupParams,
    JoinStatus,
    NoParams,
    OpenInvitation,
    RevokeInvitationParams,
    SearchParams,
    Status,
)
from zerochat.slash_commands import invite_arguments
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.actions import connections, delivery, files, jumps, members, messages, peers, pins, private, settings
from zerochat.tui.actions.nearby import show_nearby
from zerochat.tui.actions.overlay import show_overlay
from zerochat.tui.actions.short_links import long_link
from zerochat.tui.actions.targets import open_conversation, report_usage
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.panels.bars import short_view
from zerochat.tui.state.hints import left_notice
from zerochat.tui.style.text import clock_text, name_of


def run(chat: ChatView, name: str, argument: str) -> None:
    """Run the command `name`, one of `slash_commands.COMMANDS`."""
    _HANDLERS[name](chat, argument)


def open_switcher(chat: ChatView) -> None:
    from zerochat.tui.dialogs.switcher import Switcher

    chat.app.push_screen(Switcher(chat.conversations), chat.open_group)


# --- one for each command -------------------------------------------------------------------------------------------


def _help(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.help import help_dialog
    from zerochat.tui.style.keymaps import binding_owners

    nodes = (chat, chat.composer, chat.pane, chat.app)
    others = {place.owner for place in binding_owners()} - {type(node) for node in nodes}
    named = [kind for kind in others if kind.BINDING_GROUP_TITLE]
    dialogs = sorted(named, key=lambda kind: str(kind.BINDING_GROUP_TITLE))
    if (dialog := help_dialog(*nodes, dialogs=dialogs, wanted=argument)) is not None:
        chat.app.push_screen(dialog)
    else:
        word = printable_line(argument, 24)
        more = f"/help lists the commands, {app_of(chat).key('app.help')} the keys and the manual."
        chat.report_error(Printable(f"No help on {word}. {more}"))


def _new(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.create import CreateDialog

    async def create(params: CreateGroupParams) -> None:
        info = await chat.link.request("create_group", params, GroupInfo)
        await chat.feed.refresh()
        chat.open_group(info.id)
        way = f"Press {app_of(chat).key('group.invite')} or type /invite to invite people."
        chat.flash(printable_line(f"{name_of(info.name)} created. {way}"))
        _warn_signing(chat)

    try:
        name, kind = group_kinds.name_and_kind(argument)
    except group_rules.BadRules as error:
        chat.report_error(printable_line(error.sentence()))
        return
    # The dialog stays until the new group is open: the next typed line must not go to another group.
    chat.app.push_screen(CreateDialog(create, printable_line(name), kind))


def _join(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.join import JoinDialog

    async def load(invitation: str, nick: str, role: str) -> JoinStatus:
        invitation = await long_link(chat, invitation)
        return await chat.link.request("join_group", JoinGroupParams(invitation, nick or None, role), JoinStatus)

    def closed(group: str | None) -> None:
        chat.join_listener = None

        async def show(group: str) -> None:
            await chat.feed.refresh()
            chat.open_group(group)
            _warn_signing(chat)

        if group:
            chat.run_request(show(group))

    async def cancel(join: str) -> JoinStatus:
        return await chat.link.request("cancel_join", CancelJoinParams(join), JoinStatus)

    running = None if argument else next(iter(chat.joins.values()), None)
    screen = JoinDialog(load, cancel=cancel, nick=chat.nick, invitation=argument, running=running)
    chat.join_listener = screen.on_join_status
    chat.app.push_screen(screen, closed)


def _warn_signing(chat: ChatView) -> None:
    """Warn before the first post that messages in the open group are signed, where they are."""
    conversation = chat.conversations.open
    if conversation is not None and (warning := group_kinds.signing_warning(conversation.info)):
        chat.app.notify(f"{name_of(conversation.info.name)}: {warning}", markup=False, timeout=20)


def _cancel(chat: ChatView, argument: str) -> None:
    chat.run_request(chat.link.request("cancel_join", CancelJoinParams(argument), JoinStatus))


def _invite(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return
    if (arguments := invite_arguments(argument)) is None:
        report_usage(chat, "invite", "3 reader")
        return
    uses, reader, name = arguments
    from zerochat.tui.dialogs.invite import InviteDialog

    async def make(role: str, history: str | None, expires_s: int) -> InvitationInfo:
        group = conversation.info.id
        params = CreateInvitationParams(group, expires_s=expires_s, uses=uses, role=role, history=history, name=name)
        return await chat.link.request("create_invitation", params, InvitationInfo)

    def closed(_: None) -> None:
        chat.invitation_listener = None

    async def revoke(id: str) -> None:
        await chat.link.request("revoke_invitation", RevokeInvitationParams(conversation.info.id, id), GroupInfo)

    load = conversation.info.policy.join == "ask"
    screen = InviteDialog(
        conversation.name,
        make,
        lambda: run(chat, "invitations", ""),
        revoke,
        role="reader" if reader else "writer",
        history=conversation.info.policy.history,
        by_request=load,
        kind=group_kinds.sentences_of(conversation.info),
    )
    chat.invitation_listener = screen.on_invitation_used
    chat.app.push_screen(screen, closed)


def _invitations(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.invitations import InvitationsDialog

    if (conversation := open_conversation(chat)) is None:
        return
    group = conversation.info.id

    async def load() -> list[OpenInvitation]:
        return await chat.link.request("list_invitations", GroupParams(group), list[OpenInvitation])

    async def revoke(id: str) -> None:
        await chat.link.request("revoke_invitation", RevokeInvitationParams(group, id), GroupInfo)
        await chat.feed.refresh()

    screen = InvitationsDialog(conversation.name, load, revoke, lambda: run(chat, "invite", ""))
    chat.open_dialog(screen, screen.reload)


def _members(chat: ChatView, argument: str) -> None:
    if argument:
        members.whois(chat, argument)
        return
    if not chat.member_list.display:
        chat.toggle_members()
    chat.call_after_refresh(chat.member_list.focus)


def _status(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import open_live, rows

    async def load() -> tuple[Printable, Content]:
        status = await chat.feed.status()
        chat.on_status(status)
        hours, seconds = divmod(status.uptime_s, 3600)
        up = f"{hours} h {seconds // 60} min" if hours else f"{seconds // 60} min"
        facts = [
            ("profile", printable_line(status.profile)),
            ("name", name_of(status.nick)),
            ("agent", f"{printable_line(status.version)}, process {status.pid}, up {up}"),
            *address_facts(status),
            ("listener", "stopped: new members cannot connect, restart the agent" if status.closed else "running"),
            ("warning", printable_line(status.warning) or "none"),
        ]
        for join in status.joins:
            since = f"; since {clock_text(join.started_at)}" if join.started_at and join.phase != "failed" else ""
            until = f", until {clock_text(join.expires_at)}" if join.expires_at else ""
            label = f"joining {name_of(join.name)}" if join.name else "joining"
            facts.append((label, printable(join.text) + since + until))
        for group in status.groups:
            if group.state == "left":
                facts.append((printable_line(group.name, 12), "you were removed" if group.removed_by else "you left"))
                continue
            waiting = f", {group.unacknowledged} not delivered to everyone yet" if group.unacknowledged else ""
            text = f"{group.state}, {group_rules.connected(group)}{waiting}"
            facts.append((printable_line(group.name, 12), text))
            facts += [("", delivery.completeness_text(group.completeness))] if group.completeness else []
            facts += [("", Printable(quota))] if (quota := own_quota_text(group.quota_used_up, name_of)) else []
            if group.history_start is not None and group.history_start.state == "fetching":
                facts.append(("", printable_line(backfill_text(group.history_start))))
            facts += [
                ("", f"keys {printable_line(group.keys, 20)}: how messages are encrypted"),
                *([("", f"upgrade {printable_line(upgraded)}")] if (upgraded := upgrades.state(group)) else []),
                ("", f"path {printable_line(group.path, 20)}: how messages travel between members"),
                ("", f"accountability {printable_line(group.accountability, 20)}: how delivery is recorded"),
                ("", f"view {short_view(group)}: the same for all who see the same members"),
                *(("", printable_line(rule)) for rule in group_rules.policy_sentences(group.policy, group.keep)),
                *([("kept here", printable_line(keep_rules.times_text(group)))] if group.keep else []),
            ]
        return Printable("Status"), rows(facts, 13)

    chat.run_request(open_live(chat.app, load))


def address_facts(status: Status) -> list[tuple[str, str]]:
    """The agent's addresses and mediators, as rows of the status dialog."""
    if status.hidden:
        facts = [("hidden", hidden_text(status))]
    else:
        facts = [("pair address", printable_line(status.pair)), ("queue address", printable_line(status.queue))]
    facts += [("web", printable_line(uri)) for uri in status.web]
    return facts + [
        ("mediator", f"{connections.label_of(mediator)}: {connections.mediation_text(mediator)}")
        for mediator in status.mediators
    ]


def _leave(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if (conversation := open_conversation(chat)) is None:
        return
    if conversation.info.state == "left":
        chat.report(left_notice(conversation.info))
        return

    async def leave() -> None:
        await chat.link.request("leave_group", GroupParams(conversation.info.id), GroupInfo)
        await chat.feed.refresh()
        chat.rows_changed(conversation, None)

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(leave())

    question = f"Leave {conversation.name}? You keep its history, but need a new invitation to come back."
    if warning := group_rules.owner_leaving_warning(conversation.info, list(conversation.members)):
        question = f"{warning} {question}"
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Leave", "Cancel"), answered)


def _forget(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if (conversation := open_conversation(chat)) is None:
        return
    if conversation.info.state == "leaving":
        chat.report_error(
            Printable(
                "Some members do not know yet that you left. Try again soon, or type /leave to leave at once, then"
                " /forget."
            )
        )
        return
    if conversation.info.state != "left":
        chat.report_error(Printable("You are still a member of this group. Type /leave first, then /forget."))
        return

    async def forget() -> None:
        await chat.link.request("forget_group", GroupParams(conversation.info.id), NoParams)
        await chat.feed.refresh()
        chat.flash(printable_line(f"{conversation.name} was deleted from this machine."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(forget())

    question = f"Forget {conversation.name}? {group_rules.FORGET}"
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Forget", "Cancel"), answered)


def _resume(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if (conversation := open_conversation(chat)) is None:
        return
    if not conversation.info.suspended:
        chat.report_error(Printable("Nothing to resume: this group is not suspended."))
        return

    async def resume() -> None:
        await chat.link.request("resume_group", GroupParams(conversation.info.id), GroupInfo)
        await chat.feed.refresh()
        chat.flash(printable_line(f"You can post in {conversation.name} again."))

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(resume())

    question = f"Resume {conversation.name}? {group_rules.RESUME}"
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Resume", "Cancel"), answered)


def _upgrade(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import ConfirmDialog

    if (conversation := open_conversation(chat)) is None:
        return

    async def upgrade() -> None:
        info = await chat.link.request("upgrade_group", GroupParams(conversation.info.id), GroupInfo)
        await chat.feed.refresh()
        chat.report(printable_line(upgrades.result(info, conversation.name)))
        if info.upgrade is None:
            _warn_signing(chat)

    def answered(yes: bool | None) -> None:
        if yes:
            chat.run_request(upgrade())

    possible = conversation.info.upgrade
    if possible is None or possible.voted:
        chat.run_request(upgrade())  # the agent says why not, or how many agree
        return
    question = upgrades.question(conversation.info, possible, conversation.name)
    chat.app.push_screen(ConfirmDialog(printable_line(question), "Upgrade", "Cancel"), answered)


def _rekey(chat: ChatView, argument: str) -> None:
    if (conversation := open_conversation(chat)) is None:
        return

    async def rekey() -> None:
        await chat.link.request("rekey_group", GroupParams(conversation.info.id), GroupInfo)
        chat.report(printable_line(upgrades.renewed(conversation.name)))

    chat.run_request(rekey())


def _search(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.search import SearchDialog

    async def load(params: SearchParams) -> Found:
        return await chat.link.request("search_messages", params, Found)

    def chosen(hit: Hit | None) -> None:
        if hit is not None:
            jumps.to_message(chat, hit.group, hit.id)

    groups = {id: entry.name for id, entry in chat.conversations.by_id.items()}

    def starts() -> list[HistoryStart | None]:
        return [each.info.history_start for each in chat.conversations.by_id.values()]

    def byline(hit: Hit) -> Printable:
        found, nick = chat.conversations.by_id.get(hit.group), name_of(hit.author.nick)
        return found.names.past_byline(hit.author.did, nick) if found is not None else nick

    chat.app.push_screen(SearchDialog(load, groups, printable_line(argument), starts, byline), chosen)


def _evidence(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.evidence(chat, argument)


def _cases(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.cases(chat, argument)


def _proof(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions import evidence

    evidence.save_proof(chat, argument)


def _export(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions.export import export

    export(chat, argument)


def _mediator(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions.mediators import mediator

    mediator(chat, argument)


def _telemetry(chat: ChatView, argument: str) -> None:
    from zerochat.tui.actions.telemetry import telemetry

    telemetry(chat, argument)


def _quit(chat: ChatView, argument: str) -> None:
    chat.call_next(chat.app.run_action, "app.quit")


def _message_action(name: str) -> Callable[[ChatView, str], None]:
    """A handler that runs this message action."""
    return lambda chat, argument: messages.run(chat, name)


_HANDLERS: dict[str, Callable[[ChatView, str], None]] = {
    "help": _help,
    "reply": messages.reply,
    "react": messages.react,
    "edit": messages.edit,
    "delete": _message_action("delete"),
    "copy": _message_action("copy"),
    "info": _message_action("info"),
    "send": files.send,
    "files": files.files,
    "get": files.get,
    "save": files.save,
    "topic": messages.topic,
    "keep": messages.keep,
    "upgrade": _upgrade,
    "rekey": _rekey,
    "pin": lambda chat, argument: pins.pin(chat, True),
    "unpin": lambda chat, argument: pins.pin(chat, False),
    "pins": pins.show,
    "new": _new,
    "join": _join,
    "cancel": _cancel,
    "invite": _invite,
    "invitations": _invitations,
    "requests": members.requests,
    "members": _members,
    "msg": private.msg,
    "verify": members.verify,
    "role": members.role,
    "transfer": members.transfer,
    "ignore": members.ignore,
    "unignore": members.unignore,
    "remove": members.remove,
    "dismiss": members.dismiss,
    "rename": members.rename,
    "delivery": delivery.delivery,
    "overlay": show_overlay,
    "lan": show_nearby,
    "why": delivery.why,
    "evidence": _evidence,
    "proof": _proof,
    "export": _export,
    "accuse": members.accuse,
    "cases": _cases,
    "ping": peers.ping,
    "features": peers.features,
    "rotate": peers.rotate,
    "connections": connections.connections,
    "message": connections.message,
    "messages": connections.messages,
    "mediator": _mediator,
    "status": _status,
    "leave": _leave,
    "forget": _forget,
    "resume": _resume,
    "set": settings.set_command,
    "mute": settings.mute,
    "unmute": settings.unmute,
    "profile": settings.profile,
    "tour": settings.tour,
    "telemetry": _telemetry,
    "search": _search,
    "goto": jumps.goto,
    "read": jumps.read,
    "mentions": lambda chat, argument: _search(chat, f"to:me {argument} "),
    "quit": _quit,
}
