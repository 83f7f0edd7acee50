"""Handlers of files: slow requests run in the file worker and are answered when it is done; progress is notified."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.post_commands import post_command
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.subscriptions.hub import Subscriptions
from zerochat.agent.files import view
from zerochat.agent.files.worker import FileWorker, Interrupted
from zerochat.agent.storage.journal import Journal
from zerochat.agent.views.current_messages import MaterialisedMessages
from zerochat.errors import LocalError
from zerochat.group import notifications
from zerochat.group.effects import DeleteFileData
from zerochat.group.inputs import Command, CommandInput, SendPost
from zerochat.group.state import Agent, Group

PROGRESS_S: Final = 0.25
"""The interval of progress notifications."""

FileParams: TypeAlias = (
    rpc.SendFilesParams | rpc.FileParams | rpc.SaveParams | rpc.RenderPictureParams | rpc.ListFilesParams
)


class FileHandlers(Struct):
    """Owned by the request handlers."""

    server: ControlServer
    journal: Journal
    worker: FileWorker | None
    """None only in simulations: files are not supported."""
    messages: MaterialisedMessages
    subscriptions: Subscriptions
    names: Callable[[Group], Mapping[str, str]]
    """The display names of a group, by DID."""
    ticketed: Callable[[Call, Command], CommandInput]
    refuse: Callable[[Call, LocalError], None]
    _posts: list[CommandInput] = field(default_factory=list)
    _moved: dict[tuple[str, str], None] = field(default_factory=dict)
    """The files with new progress, by group and id."""
    _moved_at: float = 0.0

    # --- requests ---------------------------------------------------------------------------------------------------

    def serve(self, call: Call, agent: Agent, group: Group, params: FileParams) -> Command | rpc.FileList | None:
        """The result or command; None where the file worker answers later (`take_posts`)."""
        from zerochat.agent.files import jobs  # imported late: it slows the start

        match params:
            case rpc.ListFilesParams(_, after):
                return view.page(group, after, self.names(group))
            case rpc.FileParams(_, wanted):
                return jobs.command_for(self.journal, group, call.method, wanted)
            case rpc.SaveParams() if self.worker is not None:
                jobs.save_file(self.worker, self.journal, group, params, partial(self._done, call))
            case rpc.RenderPictureParams() if self.worker is not None:
                jobs.show_picture(self.worker, self.journal, group, params, partial(self._done, call))
            case rpc.SendFilesParams() if self.worker is not None:
                if not self.subscriptions.keys.claim(call, group.id, params):
                    return None
                post = rpc.SendMessageParams(group.id, params.text, params.reply_to, params.action, hops=params.hops)
                command = post_command(self.messages, group, post)
                assert isinstance(command, SendPost)
                jobs.attach(self.worker, agent, group, params, partial(self._done, call, command=command))
        return None

    def _done(self, call: Call, result: object, command: SendPost | None = None) -> None:
        """The file worker is done with a request, or has given it up, so that it is refused with the others."""
        if isinstance(result, Interrupted):
            return
        if isinstance(result, LocalError):
            self.refuse(call, result)
        elif command is None:
            self.server.respond(call, result)
        else:
            assert isinstance(result, tuple)
            self._posts.append(self.ticketed(call, replace(command, files=result)))

    def take_posts(self) -> list[CommandInput]:
        """The messages whose files have been read and encrypted."""
        posts, self._posts = self._posts, []
        return posts

    def end(self) -> None:
        """The agent stops: answer what has been carried out meanwhile."""
        if self.worker is not None:
            self.worker.end()
            self.worker.take()

    def discard(self, command: Command, agent: Agent) -> None:
        """Delete the files of a message that was not sent."""
        if isinstance(command, SendPost) and command.files and self.worker is not None:
            kept = agent.groups[command.group].files if command.group in agent.groups else {}
            for file in command.files:
                if file.id not in kept or kept[file.id].state == "offered":
                    self.worker.perform(DeleteFileData(command.group, file.id))

    # --- progress ---------------------------------------------------------------------------------------------------

    def note_progress(self, changes: Iterable[notifications.Notification]) -> None:
        self._moved |= {(one.group, one.file): None for one in changes if isinstance(one, notifications.FileProgress)}

    def review(self, agent: Agent, now: float) -> float | None:
        """Send progress notifications that are due; the next deadline. Seconds on the monotonic clock."""
        if self._moved and now < self._moved_at:
            return self._moved_at
        if self._moved:
            self._moved_at = now + PROGRESS_S
            moved, self._moved = self._moved, {}
            for name, key in moved:
                self._notify(agent, name, key)
        return None

    def _notify(self, agent: Agent, name: str, key: str) -> None:
        group = agent.groups.get(name)
        one = group.files.get(key) if group is not None else None
        if group is not None and one is not None:
            file = view.attachment(group, one.file, one, self.names(group))
            self.server.notify(
                self.subscriptions.listeners("file_changed", name),
                "file_changed",
                rpc.FileNotification(name, one.event, file),
            )
