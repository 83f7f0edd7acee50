"""Decorators of handlers of events."""

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Unpack, overload

from zerochat.bot.arguments import BadHandler
from zerochat.bot.handlers import FailureHandler, Handler, ReactionHandler, TextHandler
from zerochat.bot.registry import F, Options, Registry, refuse_function
from zerochat.rpc import EVENT_TYPES, ITEM_TYPES


class EventDecorators(Registry):
    """`bot.on_message` and the other decorators for events. All take these options:

    `group`: only this group (name, id or prefix of the id). `include`: events that are skipped by default, as in `Bot`.
    `max_age`: events that arrived longer ago are skipped (`10m`). `timeout`: time limit (None: no limit; default: the
    bot's).
    """

    @overload
    def on_message(self, call: F) -> F: ...
    @overload
    def on_message(
        self, *, text: str | re.Pattern[str] | None = None, **options: Unpack[Options]
    ) -> Callable[[F], F]: ...
    def on_message(
        self, call: F | None = None, *, text: str | re.Pattern[str] | None = None, **options: Unpack[Options]
    ) -> F | Callable[[F], F]:
        """Call the function for messages that are not commands of the bot. `text`: a regular expression that must match
        somewhere in the text; `m.match` is the match."""
        return self._on_text(call, text, False, options)

    @overload
    def on_mention(self, call: F) -> F: ...
    @overload
    def on_mention(
        self, *, text: str | re.Pattern[str] | None = None, **options: Unpack[Options]
    ) -> Callable[[F], F]: ...
    def on_mention(
        self, call: F | None = None, *, text: str | re.Pattern[str] | None = None, **options: Unpack[Options]
    ) -> F | Callable[[F], F]:
        """Call the function for messages that mention the bot (`@Robo`) and are not commands. `text`: as in
        `on_message`."""
        return self._on_text(call, text, True, options)

    def _on_text(
        self, call: F | None, text: str | re.Pattern[str] | None, mention: bool, options: Options
    ) -> F | Callable[[F], F]:
        def add(call: F) -> F:
            parts = self._handler(call, {"message"}, **options)
            try:
                pattern = re.compile(text) if text is not None else None
            except re.error as error:
                raise BadHandler(
                    name=parts["name"], why=f"{text!r} is not a valid regular expression ({error})"
                ) from None
            self._handlers.append(TextHandler(**parts, pattern=pattern, mention=mention, commands=self._commands))
            return call

        return add if call is None else add(call)

    @overload
    def on_reaction(self, call: F) -> F: ...
    @overload
    def on_reaction(self, *, emoji: Iterable[str] = (), **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_reaction(
        self, call: F | None = None, *, emoji: Iterable[str] = (), **options: Unpack[Options]
    ) -> F | Callable[[F], F]:
        """Call the function when a member reacts to a message (`emoji`: with one of these)."""

        def add(call: F) -> F:
            wanted = frozenset({emoji} if isinstance(emoji, str) else emoji)
            self._handlers.append(ReactionHandler(**self._handler(call, {"reacted"}, **options), emoji=wanted))
            return call

        return add if call is None else add(call)

    @overload
    def on_edit(self, call: F) -> F: ...
    @overload
    def on_edit(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_edit(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member edits a message."""
        return self._event_decorator({"message_edited"}, call, options)

    @overload
    def on_delete(self, call: F) -> F: ...
    @overload
    def on_delete(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_delete(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member deletes a message."""
        return self._event_decorator({"message_deleted"}, call, options)

    @overload
    def on_join(self, call: F) -> F: ...
    @overload
    def on_join(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_join(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member joins a group."""
        return self._event_decorator({"member_joined"}, call, options)

    @overload
    def on_leave(self, call: F) -> F: ...
    @overload
    def on_leave(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_leave(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member leaves a group or is removed."""
        return self._event_decorator({"member_left", "member_removed"}, call, options)

    @overload
    def on_delivery(self, call: F) -> F: ...
    @overload
    def on_delivery(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_delivery(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member has acknowledged messages of this profile."""
        return self._event_decorator({"delivery"}, call, options)

    @overload
    def on_join_request(self, call: F) -> F: ...
    @overload
    def on_join_request(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_join_request(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a join request arrives or is withdrawn."""
        return self._event_decorator({"join_request"}, call, options)

    @overload
    def on_private_invitation(self, call: F) -> F: ...
    @overload
    def on_private_invitation(self, **options: Unpack[Options]) -> Callable[[F], F]: ...
    def on_private_invitation(self, call: F | None = None, **options: Unpack[Options]) -> F | Callable[[F], F]:
        """Call the function when a member invites this profile to a private conversation, or that is settled."""
        return self._event_decorator({"private_invitation"}, call, options)

    def on(self, *types: str, **options: Unpack[Options]) -> Callable[[F], F]:
        """Call the function for events of these types: `on("gap", "fork")`. `rpc.EVENT_TYPES` and `rpc.ITEM_TYPES` have
        all of them."""
        _check_types(types)

        def add(call: F) -> F:
            self._handlers.append(Handler(**self._handler(call, set(types), **options)))
            return call

        return add

    def _event_decorator(self, kinds: set[str], call: F | None, options: Options) -> F | Callable[[F], F]:
        add: Callable[[F], F] = self.on(*sorted(kinds), **options)
        return add if call is None else add(call)

    # --- failures ---------------------------------------------------------------------------------------------------

    def on_error(self, call: F) -> F:
        """Call the function with a `Failure` after each failed attempt of a handler or timer."""
        return self._on_failure(call, False)

    def on_dead_letter(self, call: F) -> F:
        """Call the function with a `Failure` when an event becomes a dead letter."""
        return self._on_failure(call, True)

    def _on_failure(self, call: F, dead_letters: bool) -> F:
        parts = self._handler(call, set())
        name, blocking, limit_s = parts["name"], parts["blocking"], parts["timeout_s"]
        self._failures.append(FailureHandler(name, call, blocking, limit_s, dead_letters))
        return call


def _check_types(types: Sequence[object]) -> None:
    """Raises BadHandler for types that no event has."""
    for one in types or (None,):
        refuse_function(one, '@bot.on("gap")')
        if not isinstance(one, str) or one not in (*EVENT_TYPES, *ITEM_TYPES):
            known = get_close_matches(str(one), [*EVENT_TYPES, *ITEM_TYPES], 3) or sorted([*EVENT_TYPES, *ITEM_TYPES])
            why = f"{one!r} is not an event type" if types else "it names no event type"
            raise BadHandler(name="@bot.on", why=f"{why}. Use one of: {', '.join(known)}")
