"""Bots as processes: environment, readiness, durable consumers."""

import asyncio
import os
import threading
from contextlib import contextmanager, suppress

from zerochat import Bot
from zerochat.agent.api.client import connect
from zerochat.errors import LocalError


def environment(person, tmp_path) -> dict[str, str]:
    home = {"ZEROCHAT_HOME": str(person.places.config.parent), "ZEROCHAT_PROFILE": person.name}
    return {**os.environ, **home, "WORKED": str(tmp_path / "worked")}


def consumer(person, name="worker"):
    return next((one for one in person.client.call("list_consumers") if one.consumer == name), None)


def reached(person):
    with suppress(LocalError):
        return connect(person.places, "test")
    return None


def connected(person, name="worker"):
    known = consumer(person, name)
    return known is not None and known.connected


@contextmanager
def running(bot: Bot):
    """The bot runs in a thread of its own."""
    loops: list[asyncio.AbstractEventLoop] = []
    failed: list[BaseException] = []
    ready = threading.Event()

    async def live():
        loops.append(asyncio.get_running_loop())
        serving = asyncio.create_task(bot.serve())
        waiting = asyncio.create_task(bot.ready())
        await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
        ready.set()
        waiting.cancel()
        await serving

    def run():
        try:
            asyncio.run(live())
        except BaseException as error:  # noqa: BLE001  # for whoever started it
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(30)
    try:
        yield failed
    finally:
        loops[0].call_soon_threadsafe(bot.stop) if thread.is_alive() else None
        thread.join(30)
        assert not thread.is_alive()
