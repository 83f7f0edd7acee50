"""Says whether everybody hears everybody: `!ping`, and who has the answer after a while. `!echo` says what you say."""

from zerochat import Bot, Message

bot = Bot(name="ping")


@bot.command("ping", help="who hears me?", rate="10/min")
async def ping(m: Message) -> None:
    sent = await m.reply("pong")
    report = await sent.delivered(timeout=30)
    if not report:
        silent = ", ".join(one.nick for one in report if not one.delivered)
        await m.reply(f"{report} have heard me. Not yet: {silent}")


@bot.command("echo", help="say it again", rate="10/min")
async def echo(m: Message, *, text: str) -> None:
    await m.reply(text)


if __name__ == "__main__":
    bot.run()
