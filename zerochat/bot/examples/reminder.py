"""Reminders: `!remind 20m the bread`. On weekdays at nine it sends `Good morning.`

Reminders are stored on disk, so they survive a restart of the bot or the machine.

Environment: REMINDER_GROUP, the group to greet (default: none).
"""

import os
from datetime import UTC, datetime

from zerochat import Bot, Message
from zerochat.agent.api.client_protocol import AgentError
from zerochat.bot.schedule import parse_duration

GROUP = os.environ.get("REMINDER_GROUP", "")
OPEN_MAX, EACH_MAX, LISTED_MAX = 1_000, 20, 20
"""Pending reminders: in total, per member, and shown in a list."""
bot = Bot(name="reminder")


@bot.command("remind", help="send a reminder later: !remind 20m the bread", rate="20/min")
async def remind(m: Message, when: str, *, text: str) -> None:
    try:
        due = m.at.timestamp() + parse_duration(when)
    except ValueError as error:
        await m.reply(f"Sorry, {error}.")
        return
    own = sum(one["did"] == m.author.did for one in bot.kv.values())
    if len(bot.kv) >= OPEN_MAX or own >= EACH_MAX:
        await m.reply("There are too many pending reminders.")
        return
    author = {"nick": m.author.nick, "did": m.author.did}
    bot.kv[m.id] = {"due": due, "group": m.group.id, "text": text[:500], **author}
    await m.react("⏰")


@bot.command("reminders", help="list the pending reminders")
async def reminders(m: Message) -> None:
    mine = sorted((one["due"], one["text"]) for one in bot.kv.values() if one["group"] == m.group.id)
    lines = [f"{datetime.fromtimestamp(due, UTC):%Y-%m-%d %H:%M} UTC  {text[:80]}" for due, text in mine[:LISTED_MAX]]
    lines += [f"And {len(mine) - LISTED_MAX} more."] if len(mine) > LISTED_MAX else []
    await m.reply("\n".join(lines) or "No pending reminders.")


@bot.every("30s")
async def look() -> None:
    for asked, one in list(bot.kv.items()):
        if one["due"] <= bot.now():
            try:
                await bot.send(one["group"], f"⏰ {one['nick']}: {one['text']}", key=f"remind:{asked}")
            except AgentError as error:
                if error.retry != "never":
                    raise
                # The bot was removed from that group, for example: other reminders must not wait for it.
            del bot.kv[asked]


if GROUP:

    @bot.at("09:00", days="mon-fri")
    async def good_morning() -> None:
        await bot.send(GROUP, "Good morning.")


if __name__ == "__main__":
    bot.run()
