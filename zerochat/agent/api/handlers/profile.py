"""Handlers of the profile itself: status, settings, drafts, telemetry, backup and stop."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.handlers.context import AgentStopping, BadRequest, Context, Handler
from zerochat.agent.storage import drafts
from zerochat.agent.views.groups import joins
from zerochat.errors import LocalError
from zerochat.group.lookup import find_group
from zerochat.rpc import NoParams
from zerochat.rpc.drafts import CLIENT_CHARS_MAX

FEATURES: Final = ("consumers", "keys", "retry")


class NoTelemetry(LocalError):
    """This agent does not record telemetry."""


def hello(context: Context[rpc.HelloParams]) -> rpc.Hello:
    if context.params.protocol != rpc.PROTOCOL:
        raise BadRequest(why=f"the agent uses protocol version {rpc.PROTOCOL}, not {context.params.protocol}")
    status = context.services.status(context.agent)
    return rpc.Hello(
        protocol=rpc.PROTOCOL,
        version=status.version,
        profile=status.profile,
        nick=status.nick,
        methods=list(rpc.METHODS),
        features=list(FEATURES),
        owner=context.services.owner,
    )


def get_status(context: Context[NoParams]) -> rpc.Status:
    services, agent = context.services, context.agent
    groups = [services.group_info(agent, group) for group in agent.groups.values()]
    return replace(
        services.status(agent),
        groups=groups,
        joins=joins(agent, services.joins),
        consumers=services.subscriptions.consumers.infos(),
        unread=sum(group.unread for group in groups),
        mentions=sum(group.mentions for group in groups),
    )


def list_settings(context: Context[NoParams]) -> list[rpc.SettingInfo]:
    from zerochat.agent.settings import handlers  # rarely called, like all imports within functions here

    return handlers.settings(context.services.paths)


def change_setting(context: Context[rpc.ChangeSettingParams]) -> rpc.SettingInfo:
    from zerochat.agent.settings import handlers
    from zerochat.agent.settings.options import AT_ONCE

    changed = handlers.change(context.services.paths, context.params)
    if changed.name in AT_ONCE:
        context.services.reload()
    return changed


def reload_settings(context: Context[NoParams]) -> NoParams:
    context.services.reload()
    return NoParams()


def save_draft(context: Context[rpc.Draft]) -> NoParams:
    params = context.params
    _note_owner(context, params.client)
    drafts.store_draft(context.services.journal, find_group(context.agent, params.group).id, params.text, params.client)
    return NoParams()


def list_drafts(context: Context[rpc.DraftsParams]) -> rpc.Drafts:
    journal, groups, params = context.services.journal, context.agent.groups, context.params
    if params.client:
        _note_owner(context, params.client)
        drafts.take_over_drafts(journal, groups, params.client, context.services.draft_owners)
    return drafts.drafts_page(journal, groups, params.after, params.client or None)


def _note_owner(context: Context[rpc.Draft] | Context[rpc.DraftsParams], client: str) -> None:
    """Note the connection of a client that writes drafts, and forget those that have ended."""
    if len(client) > CLIENT_CHARS_MAX or "/" in client:
        raise BadRequest(why=f"a client's name has at most {CLIENT_CHARS_MAX} characters and no slash")
    services = context.services
    running = {name: id for name, id in services.draft_owners.items() if id in services.server.clients}
    services.draft_owners = running | ({client: context.call.client} if client else {})


def telemetry(context: Context[Struct]) -> Struct:
    if context.services.telemetry is None:
        raise NoTelemetry
    return context.services.telemetry(context.call.method, context.params)


def get_nearby(context: Context[NoParams]) -> rpc.NearbyStatus:
    return context.services.require_nearby().status(context.agent)


def set_nearby(context: Context[rpc.SetNearbyParams]) -> rpc.NearbyStatus:
    return context.services.require_nearby().change(context.params, context.agent)


def create_backup(context: Context[NoParams]) -> None:
    if context.services.draining:
        raise AgentStopping
    context.services.backups.begin(context.call)


def stop_agent(context: Context[NoParams]) -> NoParams:
    context.services.stopped = True
    return NoParams()


HANDLERS: Final[dict[str, Handler]] = {
    "hello": hello,
    "get_status": get_status,
    "list_settings": list_settings,
    "change_setting": change_setting,
    "reload_settings": reload_settings,
    "save_draft": save_draft,
    "list_drafts": list_drafts,
    "get_telemetry": telemetry,
    "set_telemetry": telemetry,
    "get_telemetry_rows": telemetry,
    "get_telemetry_names": telemetry,
    "delete_telemetry": telemetry,
    "get_nearby": get_nearby,
    "set_nearby": set_nearby,
    "create_backup": create_backup,
    "stop_agent": stop_agent,
}
