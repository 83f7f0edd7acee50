"""A profile whose agent is used outside of groups, over the web."""

from zerochat.agent.api.client import connect
from zerochat.agent.storage.paths import profile_paths
from zerochat.agent.storage.profiles import create_profile, unlock
from zerochat.agent.thread import AgentThread


class Person:
    """A profile whose agent listens for HTTP on loopback (`web`), or only goes out."""

    def __init__(self, folder, name, *, web):
        self.places = profile_paths(name, {"ZEROCHAT_HOME": str(folder / name)})
        create_profile(self.places, name, None)
        if web:
            self.places.config.parent.mkdir(parents=True, exist_ok=True)
            self.places.config.write_text('[network]\nweb = "127.0.0.1:0"\n')
        self.wake()

    def wake(self):
        self.thread = AgentThread(self.places, unlock(self.places, None), listen="127.0.0.1")
        self.thread.start()
        self.client = connect(self.places, "test")
        self.client.subscribe()

    def sleep(self):
        self.client.close()
        self.thread.stop()

    def hears(self, kind):
        """The next news of this kind."""
        while (news := self.client.next_notification(30)) is not None:
            if isinstance(news.params, kind):
                return news.params
        raise AssertionError(f"no {kind.__name__} came")

    def connection(self):
        (one,) = self.client.call("list_connections")
        return one
