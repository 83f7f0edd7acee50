"""Reports builds to a group. A CI job writes a small file for each; only changes and failures are reported.

    echo '{"job": "tests", "ok": false, "commit": "1f00ba5", "url": "https://ci/7"}' >"$CI_RESULTS/7.json.part"
    mv "$CI_RESULTS/7.json.part" "$CI_RESULTS/7.json"

Environment: CI_RESULTS, the folder (`results`); CI_GROUP, the group (`ops`). Reported files are deleted.
"""

import json
import os
from pathlib import Path

from zerochat import Bot, Message

RESULTS = Path(os.environ.get("CI_RESULTS", "results"))
GROUP = os.environ.get("CI_GROUP", "ops")
bot = Bot(name="ci")


@bot.every("5s")
async def look() -> None:
    for path in sorted(RESULTS.glob("*.json")):
        try:
            build = json.loads(path.read_text(encoding="utf-8"))
            job, ok = str(build["job"])[:60], bool(build["ok"])
        except (ValueError, TypeError, KeyError):
            path.rename(path.with_suffix(".unreadable"))
            continue
        before = bot.kv.get(job, {}).get("ok")
        if before is None or before != ok or not ok:
            mark = "🟢" if ok else "🔴"
            again = " again" if before is not None and before != ok else ""
            text = f"{mark} {job} {'passes' if ok else 'fails'}{again} {build.get('commit', '')} {build.get('url', '')}"
            # The key belongs to the file: after a crash between these lines, the report is not sent twice.
            await bot.send(GROUP, text.rstrip(), key=f"ci:{path.name}:{path.stat().st_mtime_ns}")
        bot.kv[job] = {"ok": ok, "commit": build.get("commit", "")}
        path.unlink()


@bot.command("builds", help="show the last build of each job")
async def builds(m: Message) -> None:
    lines = [f"{'🟢' if build['ok'] else '🔴'} {job} {build['commit']}" for job, build in bot.kv.items()]
    await m.reply("\n".join(lines) or "No builds yet.")


if __name__ == "__main__":
    bot.run()
