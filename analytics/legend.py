"""Meaning of the columns of a report."""

MEANINGS = {
    # --- members
    "member": "pseudonym of the member in this study",
    "exported": "whether the member's own export is included",
    "expected": "expected deliveries: one per message and member whose receipts are known",
    "delivered": "deliveries that happened",
    "ratio": "delivered / expected",
    "late": "messages that arrived after a message that is displayed below them",
    "dups": "duplicates",
    "p50": "median latency of direct deliveries",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "said": "messages sent by the member",
    "complete": "messages delivered to all recipients",
    "slow_in": "messages of others that did not arrive in time",
    "explains": "those of them that all other recipients had in time",
    "clock": "offset of the member's clock from the mean; empty if unknown",
    "drift_ppm": "clock drift, microseconds per second",
    "outages": "periods in which less than half of the messages arrived",
    # --- by keys, path, size and batch
    "grain": "message: one count per message, by the author's path; delivery: one count per delivery, by its path",
    "keys": "key mode of the group",
    "path": "direct, by mediator, both (mixed), retransmitted, or as history",
    "n": "recipients per message",
    "batch": "messages sent in the same batch",
    "messages": "number of messages",
    "whole_p50": "median time until the last recipient had the message",
    "whole_p99": "99th percentile of that time",
    # --- joins
    "observer": "the recording member: the joiner or the inviter",
    "members": "members besides the joiner, at the end",
    "connected": "whether the observer was already connected to all of them in another group",
    "outcome": "result of the join",
    "request": "joiner: until the inviter answered; inviter: until the joiner was added",
    "view": "until the joiner had the view",
    "exchanges": "until the joiner was connected to the members",
    "subscriptions": "time spent on subscriptions; only in simulated exports",
    "announce": "until the other members were informed",
    "whole": "duration of the whole join",
    "whole_rtts": "the same in round trips of the slowest connection",
    # --- as the thesis has it
    "times": "number of samples; next to it the median and, in brackets, minimum and maximum",
    "thesis": "the thesis's figure for the same case (in brackets: for a text of this size in bytes)",
}
"""By column heading; times have no `_us` there."""


def heading(name: str) -> str:
    """The heading of a column: times are shown with units, not in microseconds."""
    return name.removesuffix("_us")
