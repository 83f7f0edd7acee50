"""What the columns of a report mean, in words of those who use the chat."""

MEANS = {
    # --- members
    "member": "its pseudonym, as everywhere in this study",
    "exported": "whether an export of its own is here; of others only what was sent to them is known",
    "expected": "deliveries that were to be: of each message one for each member whose receipts are known",
    "delivered": "how many of these there were",
    "ratio": "delivered, as a share of expected",
    "late": "messages that came when one was there already that stands after them in the order of the chat",
    "dups": "messages that came once more",
    "p50": "half of what came directly took no longer than that",
    "p90": "nine tenths of it took no longer",
    "p99": "99 of a hundred took no longer",
    "said": "messages that it said itself",
    "complete": "messages that everybody got who was to get them",
    "slow_in": "messages of others that did not reach it in time",
    "explains": "those of them that all others had in time",
    "clock": "by how much its clock was ahead of the mean of all; nothing where nobody can tell",
    "drift_ppm": "by how many microseconds it gains in each second",
    "outages": "times in which less than half of what was said reached it",
    # --- by keys, path, size and batch
    "grain": "message: over messages, by the way that their author took; delivery: over deliveries, by the way of each",
    "keys": "the kind of the group's keys",
    "path": "directly, by a mediator, both (mixed), asked for again (repair), or as history",
    "n": "members that a message was for",
    "batch": "messages that were handed over at once",
    "messages": "how many messages the row is over",
    "whole_p50": "half of the messages were with the last one who was to get them within that time",
    "whole_p99": "99 of a hundred were",
    # --- joins
    "observer": "who tells of it: the newcomer, or whoever let it in",
    "members": "members besides the newcomer, in the end",
    "connected": "whether the observer was connected with all of them before it began, in another group",
    "outcome": "how it ended",
    "request": "of a newcomer, until whoever invited it answered; of who let it in, until it was in",
    "view": "until the newcomer knew the group",
    "exchanges": "until the newcomer was connected with the members",
    "subscriptions": "waiting for subscriptions, which agents do not do: empty, but in exports that are simulated",
    "announce": "until the others were told",
    "whole": "the join as a whole",
    "whole_rtts": "the same, in round trips of the slowest line",
    # --- as the thesis has it
    "times": "how often that was recorded; beside it stand the middle and, in brackets, the least and the most",
    "thesis": "what the thesis measured, where it has the same case (in brackets: of a text of so many bytes)",
}
"""By what stands above the column; times have no `_us` there."""


def above(name: str) -> str:
    """What stands above a column of a table: times are in words, and not in microseconds."""
    return name.removesuffix("_us")
