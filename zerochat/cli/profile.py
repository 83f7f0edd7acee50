"""The verbs for the profile: init, status, locate."""

from zerochat.cli.agents import new_passphrase, places_of
from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, name_of, narrate, quoted, status_lines, table
from zerochat.cli.parser import Options
from zerochat.rpc import Status
from zerochat.terminal_text import printable_line


def init(options: Options, out: Output) -> ExitCode:
    import os

    from zerochat.agent.storage.profiles import create_profile

    assert options.name is not None
    home = places_of(options)
    locked = not options.keyring and (options.passphrase or bool(os.environ.get("ZEROCHAT_PASSPHRASE_FILE")))
    create_profile(home, options.name, new_passphrase() if locked else None, keyring=options.keyring)
    out.data(
        {"profile": home.profile, "name": options.name, "data": str(home.data), "passphrase": locked}, [str(home.data)]
    )
    narrate(f"Made the profile {home.profile}. Next: `zerochat new GROUP`, or `zerochat join` with an invitation.")
    return ExitCode.OK


def status(options: Options, out: Output) -> ExitCode:
    from zerochat.agent.api.client import NoAgent, connect

    home = places_of(options)
    try:
        client = connect(home, "cli")
    except NoAgent:
        from zerochat.agent.storage.profiles import NoProfile, profile_exists

        if not profile_exists(home):
            raise NoProfile(profile=home.profile) from None
        raise
    with client:
        found = client.status()
    out.data(found, status_lines(found))
    for group in found.groups:
        for doubt in group.disagreements:
            narrate(f"Careful, in {name_of(group.name)}: {printable_line(doubt.text)}")
        if group.disagreements:
            narrate(f"`zerochat members --dismiss {quoted(group.name)}` has you warned no more.")
        if group.requests:
            who = ", ".join(name_of(one.nick) for one in group.requests)
            narrate(f"Waiting to be let into {name_of(group.name)}: {who}. `zerochat requests {quoted(group.name)}`.")
    return _health(found) if options.check else ExitCode.OK


def _health(found: Status) -> ExitCode:
    """How `--check` ends: a promise to whoever watches over the agent."""
    if found.damaged:
        return ExitCode.INTEGRITY
    return ExitCode.REFUSED if found.closed or found.warning else ExitCode.OK


# --- where things are -----------------------------------------------------------------------------------------------


def locate(options: Options, out: Output) -> ExitCode:
    home = places_of(options)
    kept = {
        "config": home.config,
        "data": home.data,
        "state": home.state,
        "cache": home.cache,
        "log": home.log,
        "socket": home.socket,
        "lock": home.lock,
        "key": home.key_file,
    }
    if options.place is not None:
        path = str(kept[options.place])
        if out.jsonl:
            out.data({"place": options.place, "path": path}, ())
        else:
            out.exactly(path)
    elif out.jsonl:
        out.data({place: str(path) for place, path in kept.items()}, ())
    else:
        out.data({}, table([(place, str(path)) for place, path in kept.items()]))
    return ExitCode.OK
