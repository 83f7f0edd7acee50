"""A program: two agents in a group whose keys heal; for each line that it reads one of them posts, and it answers."""

import sys
from pathlib import Path

from tests.support.agents import Person, meet, until
from zerochat.agent.api.handlers import groups as group_handlers
from zerochat.agent.storage import erasure_key
from zerochat.group.key_modes import MODES


def main(folder: Path) -> None:
    vars(group_handlers)["OFFERED"] = tuple(MODES)
    vars(erasure_key)["RENEWAL_S"] = 0.05
    alice, bob = Person(folder, "alice").wake(), Person(folder, "bob").wake()
    create = alice.client.create_group
    alice.client.create_group = lambda group: create(group, keys="dcgka")
    meet(alice, bob)
    print("ready", flush=True)
    for number, _ in enumerate(sys.stdin, 1):
        alice.client.send_message("friends", f"post {number}")
        until(lambda number=number: len(bob.texts()) == number, "arriving")
        until(lambda: not bob.thread.loop.journal.has_used_keys, "erasing")
        print("posted", flush=True)
    alice.sleep()
    bob.sleep()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
