"""The part of the desk where faces ask for files: what takes long comes back here, and how files get on is told."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api import post_adapter
from zerochat.agent.api.server import ControlServer
from zerochat.agent.api.subscriptions.hub import Stream
from zerochat.agent.files import view
from zerochat.agent.files.worker import FileRoom
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.current_messages import Standings
from zerochat.errors import LocalError
from zerochat.group import notifications
from zerochat.group.effects import DropFile
from zerochat.group.inputs import Ask, Command, SendPost
from zerochat.group.state import Agent, Group
from zerochat.rpc import Request

NEWS_S: Final = 0.25
"""How far apart it is told how files get on."""

Wish: TypeAlias = rpc.AttachParams | rpc.FileParams | rpc.SaveParams | rpc.PictureParams | rpc.FilesParams


class Counter(Struct):
    """Owned by the desk."""

    server: ControlServer
    journal: Journal
    room: FileRoom | None
    """None: nothing can be done with files."""
    log: Standings
    stream: Stream
    labels: Callable[[Group], Mapping[str, str]]
    """What a group's members are called."""
    ticketed: Callable[[int, Request, Command], Ask]
    refuse: Callable[[int, Request, LocalError], None]
    _filed: list[Ask] = field(default_factory=list)
    _moved: dict[tuple[str, str], None] = field(default_factory=dict)
    """The files of which there is news, by group and id."""
    _moved_at: float = 0.0

    # --- requests ---------------------------------------------------------------------------------------------------

    def serve(self, client: int, request: Request, agent: Agent, group: Group, params: Wish) -> Command | None:
        """What is wanted with files; what takes long comes back by `take_filed`."""
        from zerochat.agent.files import jobs  # hardly any agent is asked for it, and every one has to start

        match params:
            case rpc.FilesParams(_, after):
                self.server.respond(client, request.id, view.page(group, after, self.labels(group)))
            case rpc.FileParams(_, wanted):
                return jobs.wish(self.journal, group, request.method, wanted)
            case rpc.SaveParams() if self.room is not None:
                jobs.save_file(self.room, self.journal, group, params, partial(self._done, client, request))
            case rpc.PictureParams() if self.room is not None:
                jobs.show_picture(self.room, self.journal, group, params, partial(self._done, client, request))
            case rpc.AttachParams() if self.room is not None:
                if not self.stream.keys.claim(client, request, group.id, params):
                    return None
                wish = rpc.SendParams(group.id, params.text, params.reply_to, params.action)
                command = post_adapter.command_of(self.log, group, wish)
                assert isinstance(command, SendPost)
                jobs.attach(self.room, agent, group, params, partial(self._done, client, request, command=command))
        return None

    def _done(self, client: int, request: Request, result: object, command: SendPost | None = None) -> None:
        """Something that took long is over."""
        if isinstance(result, LocalError):
            self.refuse(client, request, result)
        elif command is None:
            self.server.respond(client, request.id, result)
        else:
            assert isinstance(result, tuple)
            self._filed.append(self.ticketed(client, request, replace(command, files=result)))

    def take_filed(self) -> list[Ask]:
        """The messages whose files are here now."""
        filed, self._filed = self._filed, []
        return filed

    def unsent(self, command: Command, agent: Agent) -> None:
        """A message was not said, so what was taken in for it goes."""
        if isinstance(command, SendPost) and command.files and self.room is not None:
            kept = agent.groups[command.group].files if command.group in agent.groups else {}
            for file in command.files:
                if file.id not in kept or kept[file.id].state == "offered":
                    self.room.perform(DropFile(command.group, file.id))

    # --- news -------------------------------------------------------------------------------------------------------

    def note(self, news: Iterable[notifications.Notice]) -> None:
        """What of the core's news is of files."""
        self._moved |= {(one.group, one.file): None for one in news if isinstance(one, notifications.FileMoved)}

    def review(self, agent: Agent, now: float) -> float | None:
        """Tell how the files stand of which there is news, now and then; when the next time is. Seconds on the
        monotonic clock."""
        if self._moved and now < self._moved_at:
            return self._moved_at
        if self._moved:
            self._moved_at = now + NEWS_S
            moved, self._moved = self._moved, {}
            for name, key in moved:
                self._tell(agent, name, key)
        return None

    def _tell(self, agent: Agent, name: str, key: str) -> None:
        group = agent.groups.get(name)
        one = group.files.get(key) if group is not None else None
        if group is not None and one is not None:
            file = view.attachment(group, one.file, one, self.labels(group))
            self.server.notify(self.stream.listeners("file", name), "file", rpc.FileNews(name, one.event, file))
