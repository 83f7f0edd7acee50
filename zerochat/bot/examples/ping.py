"""Tests delivery: `!ping` answers, then lists the members who have not received the answer. `!echo` repeats a text."""

from zerochat import Bot, Message

bot = Bot(name="ping")


@bot.command("ping", help="test delivery", rate="10/min")
async def ping(m: Message) -> None:
    sent = await m.reply("pong")
    report = await sent.delivered(timeout=30)
    if not report:
        missing = ", ".join(one.nick for one in report if not one.delivered)
        await m.reply(f"Delivered to {report} members. Missing: {missing}")


@bot.command("echo", help="repeat a text", rate="10/min")
async def echo(m: Message, *, text: str) -> None:
    await m.reply(text)


if __name__ == "__main__":
    bot.run()
