"""Opens every place of the chat that shows peer text, over a fake agent with hostile text everywhere.

A program of its own, because it is to be run on a pseudo-terminal with Textual's real driver: `python -m
tests.support.hostile_tour SOCKET REPORT NAMES`, where NAMES is the number of long names. REPORT gets a line for each
place with the text seen there; `tests/tui/test_hostile_screen.py` reads the terminal output.
"""

import asyncio
import sys
from pathlib import Path
from time import monotonic

import msgspec
from msgspec.structs import replace

from tests.support.fake_agent import FakeAgent, Refusal
from tests.support.hostile_text import BUNDLES, PAYLOADS
from tests.support.tui_pilot import Scene
from zerochat import rpc
from zerochat.tui.actions.members import show_member
from zerochat.tui.actions.messages import ACTIONS
from zerochat.tui.app import ZerochatApp
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.completion import bot_commands

ALL = "\n".join(f"{number:02} {text}|" for number, text in enumerate(PAYLOADS.values()))
"""Everything, for places that show whole sentences."""
LINE = " ".join(PAYLOADS.values())
LONG = ("x\n" * 64_000, "word " * 200_000, "x" * 1_000_000, "\u0301" * 150_000, "\u202e\u200b" * 80_000)
"""Texts that are only long, nearly as long as a line of the control socket. A peer's message has at most 64 KiB; the
screen does not rely on it."""
DID = "did:key:z6Mk" + LINE


class HostileAgent(FakeAgent):
    """Every peer text is hostile here."""

    async def __aenter__(self) -> "HostileAgent":
        await super().__aenter__()
        return self

    def _get_delivery(self, params: rpc.EventParams) -> rpc.DeliveryReport:
        return super()._get_delivery(replace(params, id=self._target_id(params)))

    def _list_files(self, params: rpc.ListFilesParams) -> rpc.FileList:
        return rpc.FileList(
            files=[
                rpc.FileInfo(
                    group=params.group,
                    event="e000001",
                    author=rpc.Author(DID, text),
                    posted_at=text,
                    file=file_of(text),
                )
                for text in PAYLOADS.values()
            ]
        )

    def _target_id(self, params: rpc.EventParams) -> str:
        mine = [each.id for each in self.groups[params.group].events if each.self]
        return mine[-1] if params.id == "last" else params.id

    def _get_message_status(self, params: rpc.EventParams) -> rpc.MessageStatus:
        group = self.groups[params.group]
        event = next(each for each in group.events if each.id == self._target_id(params))
        others = [rpc.MemberDelivery(each.did, each.nick, False, state="left", via=LINE) for each in group.members[1:]]
        report = rpc.DeliveryReport(params.group, params.id, 0, len(others), False, others)
        differs = [
            rpc.ChainDifferenceNotification(
                group=params.group,
                author=DID,
                nick=LINE,
                position=1,
                member=DID,
                member_nick=LINE,
                by=DID,
                by_nick=LINE,
            )
        ]
        return rpc.MessageStatus(
            event=event,
            report=report,
            provenance="relayed",
            first=1,
            here=3,
            known=9,
            forked=True,
            differs=differs,
            corroborated_by=rpc.Author(DID, LINE),
            former_members=others,
        )


def furnish(agent: HostileAgent) -> None:
    """As many members in the first group as there are payloads, each called by one, and some called by several; and
    groups that are called so."""
    texts = list(PAYLOADS.values())
    agent.nick = "me " + texts[0]
    names = [text + f" {number}" for number, text in enumerate(texts)]
    group = agent.add_group("all of it", [*names, *BUNDLES], id="g1")
    roles: list[rpc.Role] = ["reader", "admin", "owner", "writer"]
    for number, member in enumerate(group.members):
        group.members[number] = replace(
            member,
            role=roles[number % 4],
            added_by=DID,
            trust=("unverified", "verified", "changed")[number % 3],
            bot=True,
            commands=[rpc.AnnouncedCommand(member.nick, member.nick, ALL, member.nick)],
        )
    for type_ in ("member_joined", "member_left", "member_removed", "removal_voted", "role_changed", "member_renamed"):
        for number, text in enumerate(texts):
            body = {"did": DID + str(number), "nick": text, "role": text, "was": text}
            agent._log(group, 1 + number, type_, body, minute=number % 50)
    for text in (ALL, LINE):
        agent._log(group, 1, "topic_changed", {"text": text}, minute=51)
        command = {"name": text, "usage": text, "help": text, "role": text}
        agent._log(group, 1, "commands_announced", {"bot": True, "commands": [command]}, minute=51)
    for number, text in enumerate(texts):
        event = agent.post(group, 1 + number, text, minute=52)
        group.events[-1] = replace(
            event,
            reply_to="e000001",
            quoted=rpc.Quote(id="e000001", author=rpc.Author(DID, text), text=ALL),
            reactions=[rpc.Reaction(text, [DID]), rpc.Reaction("👍", [each.did for each in group.members])],
            edited_at=text,
            action=number % 5 == 0,
            mentions=[DID],
            attachments=[file_of(text)],
        )
    agent.post(group, 0, "mine " + ALL, minute=54, delivered=1)
    agent.post(group, 1, "the end " + ALL, minute=55)
    for number, text in enumerate(BUNDLES):
        agent.add_group(text, ["bob"], id=f"h{number}")
    for number, text in enumerate(texts):
        agent.add_group(text, [], id=f"i{number}")
    votes = [
        rpc.VoteInfo(group="g1", did=each.did, nick=each.nick, votes=1, needed=9, cast=2) for each in group.members[2:]
    ]
    policy = rpc.PolicyInfo(join="ask", remove="quorum", quorum=9, roles="admins", history=LINE)
    group.info = replace(group.info, votes=votes, policy=policy, keys=LINE, path=LINE, accountability=LINE, view=LINE)
    group.info = replace(group.info, topic=ALL, role="owner")
    agent.warning = ALL
    agent.url, agent.code = "https://zerochat.org/?_oob=" + LINE, "ZC:" + LINE
    agent.connections = [
        rpc.ConnectionInfo(
            id=f"c{number}{text}",
            label=text,
            state="established",
            envelope=text,
            did=DID,
            my_did=DID,
            mediator="granted" if number % 2 else None,
            begun_at=text,
        )
        for number, text in enumerate(texts)
    ]
    agent.open_invitations = [
        rpc.OpenInvitation(
            id=str(number),
            group="g1",
            expires_at=text,
            uses=0,
            history=text,
            invitees=[rpc.Invitee(state="waiting", nick=each, at=text) for each in texts],
        )
        for number, text in enumerate(texts)
    ]
    agent.letters = [rpc.ConnectionMessage(text, text, False, text) for text in texts]


def file_of(text: str) -> rpc.Attachment:
    return rpc.Attachment(id=text, name=text, size=7, type=text, state="getting", fault=ALL)


def incomplete(members: list[rpc.MemberInfo]) -> rpc.Completeness:
    gaps = [
        rpc.GapInfo(author=each.did, nick=each.nick, after=1, upto=4, missing=3, state="asked", since=LINE)
        for each in members[1:]
    ]
    heard = [
        rpc.MemberReport(did=each.did, nick=each.nick, at=LINE, missing=3, view_matches=False) for each in members[1:]
    ]
    return rpc.Completeness(complete=False, members=heard, gaps=gaps)


class Tour(Scene):
    """Visits the places and records the text seen in each."""

    def __init__(self, agent: HostileAgent, app: ZerochatApp, pilot: object, names: int) -> None:
        super().__init__(agent, app, pilot)
        self.names = BUNDLES[:names]
        self.seen: list[str] = []

    async def say(self, text: str) -> None:
        self.composer.focus()
        await super().say(text)

    async def look(self, place: str, *signs: str) -> None:
        await self.shows(*signs)
        await self.pilot.pause()
        self.seen.append(place)

    async def back(self) -> None:
        """To the chat itself, whatever lies over it."""
        for _ in range(6):
            if isinstance(self.app.screen, ChatView):
                return
            await self.press("escape")
            await self.pilot.pause()
        raise AssertionError(f"Esc does not lead back:\n{self.text}")

    async def sheet(self, place: str, line: str, *signs: str) -> None:
        """Open what a command opens, look at all of it, and close it."""
        await self.say(line)
        await self.look(place, *signs)
        for _ in range(3):
            await self.press("pagedown")
        await self.back()

    async def go(self) -> None:
        await self.pane()
        await self.sheets()
        await self.news()
        await self.people()
        await self.groups()

    async def pane(self) -> None:
        await self.look("messages", "26 [@click=app.quit]x[/]|", "27 [/b][/][bold|", "30 b\u043eb|")
        chat = self.app.chat
        chat.pane.folded = False
        chat.pane.redraw()
        for _ in range(60):
            if chat.pane.scroll_offset.y == 0 and not self.open.timeline.more:
                break
            await self.press("pageup")
            await self.look("messages, reading back")
        chat.pane.folded = True
        chat.pane.redraw()
        await self.look("joins in one line", "▸")
        await self.press("ctrl+end")
        for number, text in enumerate(LONG):
            began = monotonic()
            self.agent.say(self.agent.groups["g1"], 1, f"long {number} {text}", minute=56)
            await self.until(lambda number=number: any(f"long {number}" in row.text for row in self.open.timeline.rows))
            await self.look(f"long text {number}: {len(text):,} characters, {1000 * (monotonic() - began):.0f} ms")
            await self.press("pageup", "ctrl+end")

    async def sheets(self) -> None:
        await self.sheet("status", "/status", "queue address")
        await self.sheet("delivery", "/delivery", "Delivered to")
        await self.sheet("why", "/why", "Delivery details")
        await self.sheet("connections", "/connections", "Connections")
        await self.sheet("messages", "/messages bob", "Messages with")
        await self.sheet("words of all", "/verify", "Safety words of")
        await self.sheet("open invitations", "/invitations", "Open invitations to")
        await self.sheet("files", "/files", "Files in")
        await self.sheet("search", "/search a", "found")
        await self.sheet("information", "/info")
        await self.sheet("settings", "/set")
        await self.sheet("this profile", "/profile")
        await self.sheet("help", "/help", "Help")
        await self.messages()
        await self.press("ctrl+k")
        await self.look("switcher", "Go to")
        await self.press(*["down"] * len(PAYLOADS))
        await self.back()
        await self.press("ctrl+p")
        await self.look("palette", "Search for commands")
        await self.type("o")
        await self.pilot.pause()
        await self.back()

    async def messages(self) -> None:
        """Whatever can be looked at of one message: the menu, all of its text, who has it, what came of it."""
        posts = [row for row in self.open.timeline.rows if row.kind == "post" and not row.local]
        for row in (posts[-1], posts[-len(LONG) - 3]):  # one with everything in its text, and one with a file
            for name in ("view", "info", "why", "react", "menu", "verify"):
                if ACTIONS[name].applies(row):
                    ACTIONS[name].run(self.app.chat, self.open, row)
                    await self.look(f"message: {name}")
                    await self.press("pagedown")
                    await self.back()

    async def news(self) -> None:
        """The text of toasts, status line and banner."""
        agent, group = self.agent, self.agent.groups["g1"]
        group.info = replace(group.info, completeness=incomplete(group.members))
        agent.view(group)
        await self.look("gaps", f" {3 * len(group.members[1:])} missing")
        author = group.members[1].did
        gap = {"group": "g1", "author": author, "nick": LINE, "after": 1, "upto": 2}
        told: list[tuple[str, msgspec.Struct]] = [
            ("connection_message", rpc.ConnectionMessageNotification("c", LINE, ALL)),
            ("connection_message_settled", rpc.MessageSettledNotification("c", LINE, "m", "failed")),
            ("connection_changed", rpc.ConnectionNotification(connection="c", text=ALL)),
            ("problem_report", rpc.ProblemNotification(LINE, LINE, ALL)),
            ("did_rotated", rpc.RotatedNotification("g1", author, LINE, False)),
            ("gap", rpc.GapNotification(**gap, state="lost")),
            ("fork", rpc.ForkNotification(group="g1", author=author, nick=LINE, position=1)),
            ("refuted", rpc.RefutedNotification(**gap, by=author, by_nick=LINE)),
            ("validity_changed", rpc.ValidityNotification(**gap, mine=False, author_removed=False, valid=False)),
            ("confirmed", rpc.ConfirmedNotification(**gap)),
            ("trust_changed", rpc.TrustNotification("h1", author, LINE, "changed")),
            ("trust_changed", rpc.TrustNotification("g1", author, LINE, "changed")),
            ("ignored_changed", rpc.IgnoredNotification("g1", author, LINE, True)),
            ("member_connections", rpc.MemberConnectionsNotification("g1", author, LINE, 1, 2)),
            ("invitation_used", rpc.InvitationNotification("g1", LINE, 3)),
            ("join_request", rpc.JoinRequestNotification(group="h1", member=author, nick=LINE, state="asked")),
            ("removed", rpc.RemovedNotification("h2", author, LINE, [LINE])),
            ("warning", rpc.WarningNotification("h3", author, LINE, ALL)),
            ("join_changed", rpc.JoinStatus(join="j9", phase="failed", text=ALL, error=LINE)),
        ]
        for method, value in told:
            agent.tell(method, value)
            await self.pilot.pause()
            self.seen.append(f"news: {method}")
        agent.disagree(group, 1, ALL)
        await self.until(lambda: self.open.warnings)
        await self.look("banner")
        for method, line in (
            ("send_message", "x"),
            ("set_display_name", "/rename x"),
            ("set_role", "/role bob reader"),
        ):
            agent.refuse[method] = Refusal(ALL)
            await self.say(line)
            await self.pilot.pause()
        await self.say("/" + LINE)
        await self.look("refusals")
        agent.refuse.clear()
        self.composer.set_text("")

    async def people(self) -> None:
        chat = self.app.chat
        await self.say("/members")
        await self.until(lambda: chat.member_list.has_focus)
        for number in range(chat.member_list.option_count):
            chat.member_list.highlighted = number
        await self.look("members")
        self.composer.focus()
        await self.type("!")
        for _ in range(1 + len(self.agent.groups["g1"].members)):
            await self.press("tab")
            await self.look("commands of bots")
        for one in bot_commands(self.agent.groups["g1"].members)[: len(self.names)]:
            self.composer.set_text(f"!{one.name} ")
            await self.look("hint of a bot")
        self.composer.set_text("")
        for member in self.agent.groups["g1"].members:
            if member.nick in self.names:
                show_member(chat, member.did)
                await self.look("member dialog", "admitted by")
                await self.back()
        for number, text in enumerate(PAYLOADS.values()):
            self.agent.ask(self.agent.groups["g1"], f"{text} {number}", "reader")
        asked = self.agent.groups["g1"].info.requests
        asked[:] = [replace(one, words=[LINE] * 8) for one in asked]
        self.agent.view(self.agent.groups["g1"])
        await self.until(lambda: len(self.open.info.requests) == len(PAYLOADS))
        await self.press("f4")
        await self.look("requests", "Join requests")
        await self.press(*["down"] * len(PAYLOADS))
        await self.press("r")
        await self.pilot.pause()
        await self.press("u")
        await self.back()

    async def groups(self) -> None:
        """The few places that name one group: opened for each."""
        chat, agent = self.app.chat, self.agent
        for number, name in enumerate(self.names):
            chat.open_group(f"h{number}")
            await self.look("a group")
            await self.press("f3")
            await self.look("invitation", "Invitation to")
            agent.used(agent.groups[f"h{number}"], name)
            await self.look("invitation that was used", "used by")
            await self.back()
            await self.press("f10")
            await self.look("leaving", "Leave ")
            await self.back()
            await self.say(f"/join ZC:X{number}")
            await self.look("joining", "Your name", "F10 cancels.")
            agent.joining("asking", ALL, words=[LINE] * 8, name=name)
            await self.look("joining, under way", "02 ␛[6n␛[c␛[21t|")
            await self.back()
            agent.joining("failed", ALL, error=LINE, name=name)
            await self.pilot.pause()


async def play(socket: str, report: str, names: int) -> None:
    async with HostileAgent(Path(socket)) as agent:
        furnish(agent)
        app = ZerochatApp(agent.path)
        app.animation_level = "none"

        async def drive(pilot: object) -> None:
            tour = Tour(agent, app, pilot, names)
            try:
                await tour.go()
                Path(report).write_text("\n".join([*tour.seen, f"alive {app.is_running}"]))
            except BaseException as error:
                Path(report).write_text("\n".join([*tour.seen, f"failed {error!r}", tour.text]))
                raise
            finally:
                app.exit()

        await app.run_async(auto_pilot=drive)


if __name__ == "__main__":
    asyncio.run(play(sys.argv[1], sys.argv[2], int(sys.argv[3])))
