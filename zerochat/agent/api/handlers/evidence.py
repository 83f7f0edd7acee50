"""Handlers of accountability: the transparency log, proofs, evidence and disputes."""

import time
from typing import Final

from zerochat import rpc
from zerochat.agent.api.handlers.context import AgentStopping, Context, Handler
from zerochat.agent.views import delivery, event_pages
from zerochat.group.inputs import SetTlogTerms
from zerochat.rpc import GroupParams


def get_tlog(context: Context[GroupParams]) -> rpc.TlogInfo:
    return context.services.tlog_info(context.group)


def set_tlog_terms(context: Context[rpc.SetTlogTermsParams]) -> SetTlogTerms:
    return SetTlogTerms(context.params.group, context.params.operator, tuple(context.params.witnesses))


def get_proof(context: Context[rpc.ProofParams]) -> rpc.ProofLines:
    from zerochat.agent.proofs import builder  # rarely called, like all imports within functions here

    return builder.proof(context.services.journal, context.group, context.params)


def get_evidence(context: Context[rpc.EvidenceParams]) -> rpc.Evidence:
    from zerochat.agent.proofs import signatures

    group, services = context.group, context.services
    about = None
    if context.params.id:
        row, names = event_pages.find_row(services.journal, group, context.params.id), services.names(group)
        about = row, delivery.whole_report(group, row, names, services.messages.event(group, row, names))
    return signatures.evidence(services.journal, group, services.names(group), about)


def accuse_member(context: Context[rpc.AccuseParams]) -> rpc.CaseInfo:
    from zerochat.agent.disputes import handlers

    if context.services.draining:
        raise AgentStopping
    group = context.group
    now = int(time.time() * 1000) - context.agent.clock_offset_ms
    case = handlers.accuse_member(context.services.journal, group, context.params, now)
    if not context.params.check:
        context.services.review_disputes(group.id)
    return case


def list_cases(context: Context[GroupParams]) -> list[rpc.CaseInfo]:
    from zerochat.agent.disputes import handlers

    return handlers.case_infos(context.services.journal, context.group)


def get_case(context: Context[rpc.CaseParams]) -> rpc.CasePart:
    from zerochat.agent.disputes import handlers

    return handlers.case_part(context.services.journal, context.group, context.params)


HANDLERS: Final[dict[str, Handler]] = {
    "get_tlog": get_tlog,
    "set_tlog_terms": set_tlog_terms,
    "get_proof": get_proof,
    "get_evidence": get_evidence,
    "accuse_member": accuse_member,
    "list_cases": list_cases,
    "get_case": get_case,
}
