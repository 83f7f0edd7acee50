"""Reminds whoever asks: `!remind 20m the bread`. And begins the working day: `Good morning.` at nine.

What it was asked for is on disk, so it is not forgotten when the bot, or the machine, starts again.

Environment: REMINDER_GROUP, the group that is greeted (none: nobody is).
"""

import os
from datetime import UTC, datetime

from zerochat import Bot, Message
from zerochat.agent.api.client import AgentError
from zerochat.bot.schedule import seconds_of

GROUP = os.environ.get("REMINDER_GROUP", "")
OPEN_MAX, EACH_MAX, LISTED_MAX = 1_000, 20, 20
"""Reminders that are still to come: of all, of one person; and how many of them are told."""
bot = Bot(name="reminder")


@bot.command("remind", help="tell you something later: !remind 20m the bread", rate="20/min")
async def remind(m: Message, when: str, *, text: str) -> None:
    try:
        due = m.at.timestamp() + seconds_of(when)
    except ValueError as error:
        await m.reply(f"Sorry, {error}.")
        return
    own = sum(one["did"] == m.author.did for one in bot.kv.values())
    if len(bot.kv) >= OPEN_MAX or own >= EACH_MAX:
        await m.reply("I have too much to think of already.")
        return
    who = {"who": m.author.nick, "did": m.author.did}
    bot.kv[m.id] = {"due": due, "group": m.group.id, "text": text[:500], **who}
    await m.react("⏰")


@bot.command("reminders", help="what is still to come here")
async def reminders(m: Message) -> None:
    mine = sorted((one["due"], one["text"]) for one in bot.kv.values() if one["group"] == m.group.id)
    lines = [f"{datetime.fromtimestamp(due, UTC):%Y-%m-%d %H:%M} UTC  {text[:80]}" for due, text in mine[:LISTED_MAX]]
    lines += [f"And {len(mine) - LISTED_MAX} more."] if len(mine) > LISTED_MAX else []
    await m.reply("\n".join(lines) or "Nothing.")


@bot.every("30s")
async def look() -> None:
    for asked, one in list(bot.kv.items()):
        if one["due"] <= bot.now():
            try:
                await bot.say(one["group"], f"⏰ {one['who']}: {one['text']}", key=f"remind:{asked}")
            except AgentError as error:
                if error.retry != "never":
                    raise
                # The bot was put out there, say: the others' reminders must not wait for that.
            del bot.kv[asked]


if GROUP:

    @bot.at("09:00", days="mon-fri")
    async def good_morning() -> None:
        await bot.say(GROUP, "Good morning.")


if __name__ == "__main__":
    bot.run()
