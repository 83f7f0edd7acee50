#!/usr/bin/env python3
"""Generate the sample telemetry in assets/telemetry: exports of real agents, simulated exports, and the ground truth.

Three real agents on this machine, each in its own process, exchange messages for some minutes through a proxy that
injects faults: a slow line, a partition, and an outage of some seconds that forces retransmissions. They record
telemetry and export it with a study passphrase that is discarded. Five simulated members add slow effects: drifting
clocks, lost messages, most of a day. telemetry.truths.json holds the injected faults, by the pseudonyms of the exports.

    scripts/sample_telemetry.py                      takes five minutes
    scripts/sample_telemetry.py --out DIR --minutes 2
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
if __name__ == "__main__":
    from bench import enter_environment

    enter_environment(options=["--record"])  # with pyarrow

from benchmarks.ours import exports  # noqa: E402
from tests.support.chaos_proxy import Chaos  # noqa: E402
from tests.support.machines import Machine, acknowledged, everybody_has, machines, meet  # noqa: E402
from zerochat.agent.telemetry import collection  # noqa: E402
from zerochat.agent.telemetry.export import Selection, export  # noqa: E402
from zerochat.agent.telemetry.pseudonyms import Pseudonyms, new_passphrase  # noqa: E402

SAMPLE = ROOT / "assets" / "telemetry"
BYTES_MAX = 350_000
"""Of all of it: it is a part of every clone."""
PLAN = exports.Plan(members=5, messages=500, hours=20.0, seed=7, lost=0.002)
PAUSE_S = 0.5
"""From one message to the next."""
SLOW_S = 0.4
"""The added delay of the slow line, one way."""
LOSS_S = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=SAMPLE, metavar="DIR", help="(default: assets/telemetry)")
    parser.add_argument("--minutes", type=float, default=4.0, help="how long the real agents talk (default: 4)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="zerochat-sample-") as name:
        new = Path(name) / "sample"
        truths = {"real": real(new / "real", Path(name) / "agents", asked.minutes * 60), "simulated": simulated(new)}
        size = sum(path.stat().st_size for path in new.rglob("*") if path.is_file())
        if size > BYTES_MAX:
            print(f"{size:,} B, and at most {BYTES_MAX:,} may be in every clone: nothing was changed", file=sys.stderr)
            return 1
        shutil.rmtree(asked.out, ignore_errors=True)
        shutil.copytree(new, asked.out)
    # Beside the exports, so that no study mistakes it for one.
    beside = asked.out.with_name(f"{asked.out.name}.truths.json")
    beside.write_text(json.dumps(truths, indent=1) + "\n", encoding="ascii")
    print(f"{asked.out}: {size:,} B")
    return 0


def simulated(folder: Path) -> dict[str, Any]:
    truth = exports.write(folder / "simulated", PLAN)
    told = asdict(truth) | {"plan": asdict(PLAN)}
    told["lost"] = [list(one) for one in sorted(truth.lost)]
    for name in ("clock_us", "drift_ppm"):
        told[name] = {str(member): value for member, value in told[name].items()}
    return told


def real(out: Path, folder: Path, talk_s: float) -> dict[str, Any]:
    """Real agents; their exports are written below `out`."""
    pseudonyms = Pseudonyms.from_passphrase(new_passphrase())
    with Chaos() as chaos, machines(folder, ("alice", "bob", "carol"), chaos) as everybody:
        for one in everybody:
            status = one.client.call("get_telemetry")
            one.client.call("set_telemetry", on=True, consent=status.consent)
        meet(everybody[0], *everybody[1:])
        acknowledged(everybody)
        who = {one.name: pseudonyms.member(one.group().id, me(one)) for one in everybody}
        for other in ("alice", "bob"):
            for way in chaos.ways("carol", other):
                way.delay_s = SLOW_S
        truth = talk(chaos, everybody, talk_s)
        chaos.heal()
        everybody_has(everybody, truth["messages"], 120)
        acknowledged(everybody)
        for one in everybody:
            call = one.client.call
            rows = collection.batches(call, collection.last_batch(call))
            export(out / one.name, rows, collection.names(call), pseudonyms, Selection())
    return {
        "members": list(who.values()),
        "slow": who["carol"],
        "slow_way_us": int(SLOW_S * 1_000_000),
        "away": who["bob"],
        "harmed": who["alice"],
        **truth,
    }


def me(one: Machine) -> str:
    return next(member.did for member in one.client.list_members(one.group().id) if member.connection == "self")


def talk(chaos: Chaos, everybody: list[Machine], talk_s: float) -> dict[str, Any]:
    """They send in turn. Bob is partitioned from a quarter to two thirds of the time and sends nothing meanwhile;
    before that, Alice's messages to Bob are dropped for some seconds."""
    begun = time.monotonic()
    loss, away, back = 0.1 * talk_s, 0.25 * talk_s, 0.66 * talk_s
    truth: dict[str, Any] = {"messages": 0, "lost": []}
    way = chaos.way("alice", "bob")
    parted = False
    while (now := time.monotonic() - begun) < talk_s:
        if loss <= now < loss + LOSS_S and not way.lost:
            way.lost, truth["cable_out_us"] = True, [clock_us()]
        elif way.lost and now >= loss + LOSS_S:
            way.lost = False
            truth["cable_out_us"].append(clock_us())
        if away <= now < back and not parted:
            for other in ("alice", "carol"):
                chaos.part("bob", other)
            parted, truth["away_us"] = True, [clock_us()]
        elif parted and now >= back:
            for other in ("alice", "carol"):
                chaos.join("bob", other)
            parted = False
            truth["away_us"].append(clock_us())
        speaker = everybody[truth["messages"] % 3]
        if parted and speaker.name == "bob":
            speaker = everybody[0]
        speaker.say(f"{truth['messages']} " + "words " * (truth["messages"] * 7 % 40))
        truth["messages"] += 1
        time.sleep(PAUSE_S)
    return truth


def clock_us() -> int:
    return time.time_ns() // 1000


if __name__ == "__main__":
    sys.exit(main())
