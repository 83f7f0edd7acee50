"""What follows when an address of a mediator fails, or works again: members get what they lack over another route."""

from zerochat.group.links import mediator_mail, mediator_proof, peers
from zerochat.group.membership import leave
from zerochat.group.transaction import Transaction


def post_failed(tx: Transaction, uri: str) -> None:
    """A post to a URI has failed."""
    if not mediator_proof.handle_failure(tx, uri) and mediator_mail.record_failure(tx, uri):
        _use_other_routes(tx, uri)


def retry_uri(tx: Transaction, uri: str) -> None:
    """The backoff of a failed URI has ended, or it has proved itself: send the members that are reached there what they
    lack."""
    for name, group in tx.agent.groups.items():
        if group.state == "left":
            continue
        for member in list(group.links.peers):
            way = mediator_mail.route_to(tx, name, member)
            if way is not None and way.uri == uri and mediator_mail.goes_by_mail(tx, name, member):
                with tx.attempt():
                    peers.handle_mail_up(tx, name, member)
            elif way is None and any(one.uri == uri for one in mediator_mail.announced_routes(group, member)):
                mediator_mail.seek(tx, name, member)
        leave.finish_leaving(tx, name)


def _use_other_routes(tx: Transaction, uri: str) -> None:
    """A URI fails: members with another mediator get what they lack over another route."""
    for name, group in tx.agent.groups.items():
        if group.state == "left":
            continue
        for member in list(group.links.peers):
            is_concerned = any(way.uri == uri for way in mediator_mail.announced_routes(group, member))
            if is_concerned and mediator_mail.goes_by_mail(tx, name, member):
                with tx.attempt():
                    peers.handle_mail_up(tx, name, member)
            elif is_concerned:
                mediator_mail.seek(tx, name, member)
