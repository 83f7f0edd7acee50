"""Group membership: a pure function from the membership events to a view, the same for every member.

The membership events form a causal graph of their own, and every member stores all of it: the `deps` of a membership
event name every head that its author knew. The view at an event therefore depends only on the event's causal past,
whatever else was lost (decentralised membership as in p2panda and the DCGKA paper). A key is added at most once; a
member who returns does so with a new key.

    bodies       the event bodies and the policy of a group
    view         the members and their permissions
    resolve      from a set of events to a view, including conflicting events
    event_graph  the causal graph of the events, in sets
    void_events  which events concurrent removals make void, and which votes count
    electorate   who has a say in a removal, and whose votes count
    seats        which additions exceed the seats
    rights       whether an event was permitted in its causal past
    upgrades     agreement to keys that heal, and which events have it in their past
    quota        how many events each member may cause
    past_view    what rights depend on, in the past of an event
    log          all of this for a growing set of events, one at a time
    past_check   all of this for a whole past, in slices
"""

from zerochat.group.membership.bodies import (
    ORIGIN_PREFIX,
    TLOG,
    AddBody,
    GenesisBody,
    LabelBody,
    LeaveBody,
    Policy,
    PolicyBody,
    RemoveBody,
    RoleBody,
    TermsBody,
    VoteBody,
    add_of,
    genesis_of,
    is_history_rule,
    label_of,
    leave_of,
    policy_of,
    remove_of,
    role_of,
    rules_of,
    terms_of,
    upgrade_of,
    vote_of,
)
from zerochat.group.membership.log import check_control, extend_control, log_of, missing
from zerochat.group.membership.past_check import PastCheck, check_all
from zerochat.group.membership.quota import AUTHOR_CONTROL_MAX, CONTROL_MAX, RECEIVED_MAX, TooManyEvents
from zerochat.group.membership.resolve import ancestors, descendants, heads_of, resolve_view, voters_for, votes_for
from zerochat.group.membership.rights import has_seat_for
from zerochat.group.membership.view import (
    ADMIN,
    OWNER,
    READER,
    WRITER,
    Member,
    Terms,
    View,
    label_free,
    may_add,
    may_change_role,
    may_label,
    may_post,
    may_remove,
    may_set_terms,
    may_vote,
    member_names,
    quorum_met,
    validity_changes,
    votes_needed,
)

__all__ = [
    "ADMIN",
    "AUTHOR_CONTROL_MAX",
    "CONTROL_MAX",
    "ORIGIN_PREFIX",
    "OWNER",
    "READER",
    "RECEIVED_MAX",
    "TLOG",
    "WRITER",
    "AddBody",
    "GenesisBody",
    "LabelBody",
    "LeaveBody",
    "Member",
    "PastCheck",
    "Policy",
    "PolicyBody",
    "RemoveBody",
    "RoleBody",
    "Terms",
    "TermsBody",
    "TooManyEvents",
    "View",
    "VoteBody",
    "add_of",
    "ancestors",
    "check_all",
    "check_control",
    "descendants",
    "extend_control",
    "genesis_of",
    "has_seat_for",
    "heads_of",
    "is_history_rule",
    "label_free",
    "label_of",
    "leave_of",
    "log_of",
    "may_add",
    "may_change_role",
    "may_label",
    "may_post",
    "may_remove",
    "may_set_terms",
    "may_vote",
    "member_names",
    "missing",
    "policy_of",
    "quorum_met",
    "remove_of",
    "resolve_view",
    "role_of",
    "rules_of",
    "terms_of",
    "upgrade_of",
    "validity_changes",
    "vote_of",
    "voters_for",
    "votes_for",
    "votes_needed",
]
