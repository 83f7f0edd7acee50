"""Who is in, and as what: a pure function from the group's membership events to its view, the same at every member.

The events form a graph of their own, of which everybody gets all of it: a membership event's `deps` name every head
that its author knew. So the view at any event is exactly the event's causal past, whatever else was lost (`protocols`
of decentralised membership: p2panda, the DCGKA paper). Nobody is ever added twice: whoever comes back does so with a
new key.

    bodies     what the events say, and the policy of a group
    view       the members, and what each of them may do
    resolve    from a set of events to a view, where they are at odds too
    votes      how many votes put somebody out, and whose they are
    rights     whether an event was in order when it was made
"""

from zerochat.group.membership.bodies import (
    LEDGER,
    ORIGIN,
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
    vote_of,
)
from zerochat.group.membership.resolve import ancestors, heads_of, resolve_view, voters_for, votes_for
from zerochat.group.membership.rights import (
    AUTHOR_CONTROL_MAX,
    CONTROL_MAX,
    check_all,
    check_control,
    missing,
)
from zerochat.group.membership.view import (
    ADMIN,
    MEMBERS_MAX,
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
    names,
    quorum_met,
    votes_needed,
)

__all__ = [
    "ADMIN",
    "AUTHOR_CONTROL_MAX",
    "CONTROL_MAX",
    "LEDGER",
    "MEMBERS_MAX",
    "ORIGIN",
    "OWNER",
    "READER",
    "WRITER",
    "AddBody",
    "GenesisBody",
    "LabelBody",
    "LeaveBody",
    "Member",
    "Policy",
    "PolicyBody",
    "RemoveBody",
    "RoleBody",
    "Terms",
    "TermsBody",
    "View",
    "VoteBody",
    "add_of",
    "ancestors",
    "check_all",
    "check_control",
    "genesis_of",
    "heads_of",
    "is_history_rule",
    "label_free",
    "label_of",
    "leave_of",
    "may_add",
    "may_change_role",
    "may_label",
    "may_post",
    "may_remove",
    "may_set_terms",
    "may_vote",
    "missing",
    "names",
    "policy_of",
    "quorum_met",
    "remove_of",
    "resolve_view",
    "role_of",
    "rules_of",
    "terms_of",
    "vote_of",
    "voters_for",
    "votes_for",
    "votes_needed",
]
