"""What is looked at, and said again, from time to time, in groups that keep a log, and in no others."""

from zerochat.group.effects import DropBlobs, Notify
from zerochat.group.notifications import LogStalled
from zerochat.group.signed_streams import subscriptions
from zerochat.group.state import Log
from zerochat.group.tlog import follower, operator, pending_entries, submission, terms
from zerochat.group.tlog.adoption import is_current, rules_now
from zerochat.group.tlog.messages import can_say, edit_log, may_repeat
from zerochat.group.tlog.witness import HELD_MS
from zerochat.group.transaction import Turn

ROUND_MS = 15_000
"""How often, give or take a quarter."""
ANEW_MAX = 8
"""Members who are asked anew in one round, after new terms."""
OLD_LOT = 12
"""Of 256 rounds, in so many we ask how a log is by whose terms nobody goes any more."""
DROP_LOT = 4
"""And in so many what rests for long enough is thrown away."""


def go(turn: Turn, name: str) -> None:
    """One round."""
    if turn.group(name).state != "active" or not turn.group(name).view.ledger:
        return
    terms.look(turn, name)
    pending_entries.end_old(turn, name)
    for origin in list(turn.group(name).logs):
        submission.look(turn, name, origin)
        submission.say_again(turn, name, origin)
        _operate(turn, name, origin)
        _follow(turn, name, origin)
        _tell_stalled(turn, name, origin)
    submission.owe_no_more(turn, name)
    _ask_anew(turn, name)
    if turn.moment.random(1)[0] < DROP_LOT:
        turn.say(DropBlobs(name, turn.now - HELD_MS))
    turn.timer("log", name, ROUND_MS * 3 // 4 + turn.moment.random(1)[0] * ROUND_MS // 510)


def _operate(turn: Turn, name: str, origin: str) -> None:
    log = turn.group(name).logs[origin]
    if log.operated is None or log.split is not None:
        return
    if log.operated.asked is not None:
        operator.show(turn, name, origin)
    elif log.operated.waiting:
        operator.place(turn, name)
    elif _is_owed_a_look(turn, log):
        operator.look_again(turn, name, origin)


def _is_owed_a_look(turn: Turn, log: Log) -> bool:
    """Whether it has to be shown that nothing more was posted until the time for defending was over."""
    return log.shown_at < log.refresh_at and turn.now > log.refresh_at + follower.SLACK_MS


def _follow(turn: Turn, name: str, origin: str) -> None:
    """Ask for what we know of, and in the end for what we do not."""
    group = turn.group(name)
    log = group.logs[origin]
    follower.seek(turn, name, origin)
    follower.read_on(turn, name, origin)
    waits = bool(log.mine) or _is_owed_a_look(turn, log)
    if not is_current(group, log):
        waits = waits or turn.moment.random(1)[0] < OLD_LOT
    if waits and log.operated is None:
        whom = follower.somebody(turn, name, log)
        if whom is not None and may_repeat(turn, name, whom):
            follower.ask(turn, name, origin, whom)


def _tell_stalled(turn: Turn, name: str, origin: str) -> None:
    log = turn.group(name).logs[origin]
    since = terms.stalled_since(turn.group(name), log)
    if since is not None and turn.now >= since + terms.STALLED_MS and not log.told:
        edit_log(turn, name, origin, told=turn.now)
        turn.say(Notify(LogStalled(name, origin, since)))


def _ask_anew(turn: Turn, name: str) -> None:
    """There are new terms: ask to hear those by them whom we hear by others."""
    group = turn.group(name)
    rules = rules_now(group)
    others = [did for did, stream in group.streams.items() if stream.rules != rules and can_say(turn, name, did)]
    agreed = [did for did in others if group.peers[did].view == group.view.checksum]
    for member in agreed[:ANEW_MAX]:
        subscriptions.say_anew(turn, name, member)
