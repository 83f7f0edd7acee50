"""A minimal agent: a control socket with one long group behind it, to measure the screen alone.

`python crier.py SOCKET MESSAGES` answers as an agent would. It serves the group after `open` on its standard input;
`say N` lets N messages arrive at once, `late` one that belongs among the last ones. Messages are generated on request.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[2])]

from benchmarks.ours.chatter import PEOPLE, author_of, text_of  # noqa: E402
from zerochat import rpc  # noqa: E402
from zerochat.rpc import Author, Delivery, Event, GroupInfo, History, MemberInfo  # noqa: E402

GROUP = "g" * 43
START_MS = 1_750_000_000_000
GAP_MS = 20_000
STAMP = "2026-03-{day:02}T{hour:02}:{minute:02}:00.000Z"
DIDS = [f"did:key:z6Mk{name * 8}"[:56] for name in PEOPLE]


def event(number: int, *, late: bool = False, text: str = "") -> Event:
    """The one with this number. `late`: it belongs before the last ones."""
    minutes = number * GAP_MS // 60_000
    stamp = STAMP.format(day=minutes // 1440 % 28 + 1, hour=minutes // 60 % 24, minute=minutes % 60)
    author = author_of(number)
    return Event(
        seq=number + 1,
        type="message",
        group=GROUP,
        id=f"{number:043}",
        author=Author(DIDS[author], PEOPLE[author]),
        position=number + 1,
        lamport=START_MS + (number - (5 if late else 0)) * GAP_MS,
        parents=[],
        sent_at=stamp,
        received_at=stamp,
        body={"text": text or text_of(number)},
        late=late,
        self=author == 0,
        delivery=Delivery(len(PEOPLE) - 1, len(PEOPLE) - 1),
    )


class Crier:
    def __init__(self, messages: int) -> None:
        self.messages = messages
        self.writers: set[asyncio.StreamWriter] = set()
        self.opened = asyncio.Event()

    def info(self) -> GroupInfo:
        return GroupInfo(
            id=GROUP,
            name="hikers",
            state="active",
            me=DIDS[0],
            nick=PEOPLE[0],
            members=len(PEOPLE),
            connected=len(PEOPLE) - 1,
            keys="pairwise-multi",
            path="mesh",
            accountability="acks",
            view="3f9a12c4b7e0",
            unacknowledged=0,
            created_at=STAMP.format(day=1, hour=0, minute=0),
        )

    def history(self, params: dict[str, Any]) -> History:
        before, after, limit = params.get("before"), params.get("after"), params.get("limit", 100)
        end = int(before) if before is not None else self.messages
        start = int(after) + 1 if after is not None else max(end - limit, 0)
        end = min(start + limit, self.messages) if after is not None else end
        return History([event(n) for n in range(start, end)], more=start > 0, newer=end < self.messages)

    async def answer(self, method: str, params: dict[str, Any]) -> object:
        match method:
            case "hello":
                return rpc.Hello(protocol=rpc.PROTOCOL, version="0", profile="default", nick=PEOPLE[0])
            case "list_groups":
                await self.opened.wait()
                return [self.info()]
            case "list_members":
                return [
                    MemberInfo(
                        did=did,
                        nick=name,
                        connection="self" if did == DIDS[0] else "connected",
                        joined_at=STAMP.format(day=1, hour=0, minute=0),
                    )
                    for did, name in zip(DIDS, PEOPLE, strict=True)
                ]
            case "get_history":
                return self.history(params)
            case "list_drafts":
                return rpc.Drafts([], False)
            case "get_status":
                return rpc.Status(
                    profile="default", nick=PEOPLE[0], version="0", pid=1, uptime_s=1, pair="", queue="", closed=False,
                    groups=[],
                )  # fmt: skip
            case _:
                return rpc.NoParams()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.add(writer)
        while line := await reader.readline():
            request = msgspec.json.decode(line, type=rpc.Request)
            params = {} if request.params is msgspec.UNSET else request.params
            result = await self.answer(request.method, params)
            writer.write(msgspec.json.encode({"jsonrpc": "2.0", "id": request.id, "result": result}) + b"\n")

    def tell(self, events: list[Event]) -> None:
        lines = b"".join(
            msgspec.json.encode({"jsonrpc": "2.0", "method": "event", "params": e}) + b"\n" for e in events
        )
        for writer in self.writers:
            writer.write(lines)

    def say(self, count: int) -> None:
        first, self.messages = self.messages, self.messages + count
        self.tell([event(number) for number in range(first, self.messages)])

    def late(self) -> None:
        self.messages += 1
        self.tell([event(self.messages - 1, late=True)])


async def main(socket: str, messages: int) -> None:
    crier = Crier(messages)
    server = await asyncio.start_unix_server(crier.serve, socket, limit=rpc.LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        word, _, number = line.decode().strip().partition(" ")
        if word == "open":
            crier.opened.set()
        elif word == "say":
            crier.say(int(number))
        else:
            crier.late()
    server.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
