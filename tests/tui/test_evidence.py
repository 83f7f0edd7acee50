"""Evidence in the terminal application: dialogs, saved proofs, transparency log, cases."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import FakeAgent, Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.presentation import proofs
from zerochat.rpc import (
    AnnouncedVerdict,
    Author,
    Evidence,
    SignedStream,
    TlogSplitNotification,
    TlogStalledNotification,
    TlogTermsNotification,
)
from zerochat.tui.actions.evidence import summary_of
from zerochat.tui.composer import arguments
from zerochat.tui.composer.completion import completions
from zerochat.tui.dialogs.dialog import HangingText
from zerochat.tui.dialogs.evidence import EvidenceDialog
from zerochat.tui.state.preferences import SettingsStore

pytestmark = pytest.mark.usefixtures("utc")
SIZES = [(80, 24), (100, 30), (200, 50)]


def unsigned(agent):
    """The weekend with messages that are not signed."""
    weekend(agent)
    for group in agent.groups.values():
        group.info = replace(group.info, keys="pairwise-multi")


def signing(agent):
    weekend(agent)
    group = agent.groups["g1"]
    group.info = replace(group.info, keys="sender-key")


def text_in(it):
    """All that stands in the dialog, in one line."""
    return " ".join(str(it.app.screen.query_one(HangingText).content).split())


def test_an_event_is_named_in_words(tmp_path):
    agent = FakeAgent(tmp_path / "agent.sock")
    group = agent.add_group("hikers", ["bob"])
    agent.post(group, 1, "a\nb", minute=1)
    created, message = group.events
    assert summary_of(created) == "You created hikers" and summary_of(message) == "bob: a⏎b"


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_evidence_dialog_of_a_group(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=signing, settings_store=SettingsStore()) as it:
            await it.shows("seven at the station")
            await it.say(f"/set theme {theme}")
            await it.say("/evidence")
            await it.until(lambda: it.app.theme == theme)
            await it.shows("Evidence in weekend", "Esc closes")
            assert "has signed for all of yours, at" in text_in(it)
            assert "carol" in it.text and "has signed for none of yours" in text_in(it)
            assert "any member can prove to anyone what you wrote, and you can never deny it." in text_in(it)
            assert not it.app.screen.query("#write"), "there is no message to prove"
            await it.press("w", "escape")
            await it.until(lambda: it.app.screen is it.app.chat)
            assert it.agent.count("get_proof") == 0

    run(play())


@pytest.mark.parametrize("size", others_slow(SIZES))
def test_a_proof_is_saved_from_the_evidence_dialog(tmp_path, size):
    target = tmp_path / "a folder"
    target.mkdir()

    async def play():
        async with scene(tmp_path, size=size, setting=signing) as it:
            await it.shows("seven at the station")
            await it.press("f6", "E")
            await it.shows("Evidence for this message", "You: seven at the station", "✓ bob  has signed for it, at")
            assert "You can prove that bob has it, by their signatures." in text_in(it)
            assert "carol unknown" in text_in(it)
            await it.press("w")
            await it.shows("Save the proof as", "existing files are kept")
            field = it.app.screen.query_one("#answer")
            assert field.value.endswith("/weekend-e000004.zproof")
            field.value = str(target)
            await it.press("enter")
            await it.until(lambda: "Proof saved to" in it.told())
            said = it.told()
            assert (
                f"{target}/weekend-e000004.zproof" in said
                and "1 signed message, with signed acknowledgements by 1 member" in said
            )
            assert "You: seven at the station" in said and "can pass it on" in said

    run(play())
    (file,) = target.iterdir()
    assert file.name == "weekend-e000004.zproof" and file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines()[1] == '{"message":"e000004"}'


@pytest.mark.slow
def test_a_missing_downloads_folder_is_created(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "home"))

    async def play():
        async with scene(tmp_path, setting=signing) as it:
            await it.shows("seven at the station")
            await it.press("f6", "E")
            await it.shows("Evidence for this message")
            await it.press("w")
            await it.shows("Save the proof as")
            await it.press("enter")
            await it.until(lambda: "Proof saved to" in it.told())

    run(play())
    (file,) = (tmp_path / "home").rglob("*.zproof")
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_proofs_do_not_overwrite_files(tmp_path):
    file = tmp_path / "mine.zproof"
    file.write_text("mine")

    async def play():
        async with scene(tmp_path, setting=signing) as it:
            await it.shows("seven at the station")
            await it.say(f"/proof {file}")
            await it.until(lambda: "exists already, and was not overwritten" in it.told())
            await it.say("/proof /nowhere/at/all/x.zproof")
            await it.until(lambda: "/nowhere/at/all" in it.told())
            await it.press("f6", "E")
            await it.shows("Evidence for this message")
            await it.pilot.click("#write")
            await it.shows("Save the proof as")
            it.app.screen.query_one("#answer").value = str(file)
            await it.press("enter")
            await it.until(lambda: "exists already" in it.text.replace("\n", " "))
            assert it.app.screen.query_one("#answer").value == str(file), "the path can be corrected"

    run(play())
    assert file.read_text() == "mine"


@pytest.mark.slow
def test_the_target_message_of_evidence(tmp_path):
    async def play():
        async with scene(tmp_path, setting=signing) as it:
            await it.shows("seven at the station")
            for number, (line, event) in enumerate(
                [
                    (f"/proof {tmp_path}/0.zproof", "e000004"),  # the newest
                    (f"/proof last {tmp_path}/1.zproof", "e000004"),
                    (f"/proof e000002 {tmp_path}/2.zproof", "e000002"),
                    (f"/proof '{tmp_path}/a b.zproof'", "e000004"),
                ]
            ):
                await it.say(line)
                await it.until(lambda count=number + 1: it.agent.count("get_proof") == count, line)
                assert asked(it.agent, "get_proof")[-1]["id"] == event
            await it.until(lambda: (tmp_path / "a b.zproof").exists())
            await it.press("f6", "up")
            it.composer.set_text(f"/proof {tmp_path}/3.zproof")
            it.composer.focus()
            await it.press("enter")
            await it.until(lambda: (tmp_path / "3.zproof").exists())
            for line, answer in [
                ("/proof", "Usage: /proof [MSG] PATH"),
                ("/proof last", "Usage: /proof [MSG] PATH"),
                (f"/proof nothing {tmp_path}/4.zproof", "There is no event nothing"),
            ]:
                await it.say(line)
                await it.until(lambda answer=answer: answer in it.told(), line)
            assert not (tmp_path / "4.zproof").exists()

    run(play())


@pytest.mark.slow
def test_unsigned_groups_have_no_proofs(tmp_path):
    async def play():
        async with scene(tmp_path, setting=unsigned) as it:
            await it.shows("seven at the station")
            await it.say(f"/proof {tmp_path}/x.zproof")
            await it.until(lambda: "nobody can prove it" in it.told())
            await it.press("f6", "E")
            await it.shows("Evidence for this message")
            assert "Messages in this group are not signed" in text_in(it) and "you can deny" in text_in(it)
            assert not it.app.screen.query("#write")
            await it.press("escape", "escape")
            it.agent.refuse["get_evidence"] = Refusal("The group is gone.")
            await it.say("/evidence")
            await it.until(lambda: "The group is gone." in it.told())
            assert not isinstance(it.app.screen, EvidenceDialog)

    run(play())
    assert not (tmp_path / "x.zproof").exists()


@pytest.mark.slow
def test_hostile_names_in_the_evidence_dialog(tmp_path):
    def setting(agent):
        signing(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, name=HOSTILE)
        group.members[1] = replace(group.members[1], nick=HOSTILE)
        agent.post(group, 1, HOSTILE, minute=9)

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            await it.press("f6", "E")
            await it.shows("Evidence for this message")
            assert_harmless(it.text)
            await it.press("w")
            await it.shows("Save the proof as")
            assert_harmless(it.text)
            name = it.app.screen.query_one("#answer").value.rpartition("/")[2]
            assert name.endswith("-e000006.zproof") and "/" not in name
            await it.press("escape", "escape", "escape")
            await it.say("/evidence")
            await it.shows("Evidence in")
            assert_harmless(it.text)

    run(play())


def test_proof_arguments_complete(tmp_path, monkeypatch):
    (tmp_path / "proofs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert arguments.names_for("/proof pr", []) == ["proofs/"]
    assert arguments.names_for("/proof la", []) == ["last "]
    assert arguments.names_for("/proof last pr", []) == ["last proofs/"]
    found = completions("/proof last:bob pr", [])
    assert found is not None and [one.text for one in found] == ["/proof last:bob proofs/"]


# --- announcing signatures --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
def test_signing_is_announced_before_the_first_post(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=unsigned, settings_store=SettingsStore()) as it:
            await it.shows("Message weekend")
            assert "signed" not in it.text
            await it.say(f"/set theme {theme}")
            await it.press("f7", "f7")
            await it.shows("These rules stay for good.")
            keys = it.app.screen.query_one("#rule-kind")
            keys.focus()
            await it.press(*5 * ["right"])
            await it.shows("signed by the author, one envelope for all")
            about = it.app.screen.query_one("#kind-description")
            assert "You can never deny what you wrote" in str(about.content)
            await it.until(lambda: about.region.bottom <= it.app.screen.size.height, "all of it in sight")
            it.app.screen.query_one("#answer").value = "court"
            await it.press("enter")
            await it.until(lambda: it.app.screen is it.app.chat and it.open.info.name == "court")
            await it.until(lambda: str(it.composer.placeholder) == "Message court (messages are signed)")
            await it.until(lambda: "court: Your messages here are signed" in it.told())
            assert it.app.theme == theme

    run(play())


def test_joiners_are_warned_about_signing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("Message weekend")
            await it.press("f8")
            await it.shows("Join a group")
            await it.paste("https://zerochat.org/?_oob=x")
            await it.press("enter")
            await it.until(lambda: it.agent.count("join_group") == 1)
            group = it.agent.add_group("court", ["dora"])
            group.info = replace(group.info, keys="sender-key")
            it.agent.joining("joined", "You are in.", group=group.info.id)
            await it.until(lambda: str(it.composer.placeholder) == "Message court (messages are signed)")
            await it.until(lambda: "you can never deny it" in it.told())

    run(play())


# --- the transparency log ---------------------------------------------------------------------------------------------


def accountable(state):
    def setting(agent):
        signing(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, accountability="tlog", tlog=state)

    return setting


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_the_tlog_state_in_the_top_bar(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=accountable("kept"), settings_store=SettingsStore()) as it:
            await it.shows("seven at the station")
            await it.say(f"/set theme {theme}")
            await it.until(lambda: it.app.theme == theme)
            await it.say("/evidence")
            await it.shows("Evidence in weekend")
            said = text_in(it)
            assert "operator bob" in said and "witnesses alice, bob and carol; 2 of 3 must cosign" in said
            assert "you witness" in said and "12 cosigned (12 messages); complete up to" in said
            assert "can prove that it was withheld" in said
            group = it.agent.groups["g1"]
            group.info = replace(group.info, tlog="stalled")
            await it.until(lambda: "1 entry of yours, since" in text_in(it), "the dialog is refreshed")
            assert "The transparency log is stalled" in text_in(it)

    run(play())


@pytest.mark.slow
def test_tlog_notifications_are_reported(tmp_path):
    def setting(agent):
        accountable("unkept")(agent)
        group = agent.groups["g1"]
        keepers = [{"did": one.did, "nick": one.nick} for one in group.members]
        agent._log(group, 0, "terms_set", {"operator": keepers[1], "witnesses": keepers}, minute=4)
        agent._log(group, 0, "terms_set", {"operator": "x", "witnesses": {"nick": HOSTILE}}, minute=5)

    async def play():
        async with scene(tmp_path, size=(160, 30), setting=setting) as it:
            await it.shows("alice set the transparency log: operator bob, witnesses alice")
            await it.shows("alice set the transparency log: operator ?, witnesses ?", "not accountable yet")
            assert_harmless(it.text)
            group = it.agent.groups["g1"]
            bob = Author(group.members[1].did, "bob")
            it.agent.tell("tlog_terms", TlogTermsNotification(group="g1", members_missing=2))
            await it.until(lambda: "two more" in it.told() or "2 more" in it.told())
            group.info = replace(group.info, tlog="stalled")
            it.agent.tell("tlog_stalled", TlogStalledNotification("g1", "2025-11-20T12:10:00.000Z"))
            await it.shows("log stalled")
            await it.until(lambda: "you cannot prove its delivery" in it.told())
            group.info = replace(group.info, tlog="split")
            it.agent.tell("tlog_split", TlogSplitNotification("g1", bob))
            await it.shows("conflicting logs")
            await it.until(lambda: "bob has signed two different transparency logs" in it.told())
            await it.press("escape")
            await it.say("/help")
            it.agent.tell("tlog_terms", TlogTermsNotification(group="g2", operator=bob, witnesses=[bob, bob, bob]))
            await it.until(lambda: "work: Transparency log: operator bob, witnesses bob, bob and bob." in it.told())

    run(play())


def test_convicted_members_have_a_badge(tmp_path):
    def setting(agent):
        accountable("kept")(agent)
        group = agent.groups["g1"]
        group.members[1] = replace(group.members[1], verdicts=["upheld", "forked", "from a later version"])

    async def play():
        async with scene(tmp_path, size=(110, 30), setting=setting) as it:
            await it.shows("bob§ │ shall we go?", "● bob § convicted")
            await it.say("/members")
            await it.press("home", "enter")
            await it.shows("§ convicted")
            said = text_in(it)
            assert "has withheld a message, has signed two messages for one position and has broken the rules" in said
            await it.press("escape")
            group = it.agent.groups["g1"]
            group.members[1] = replace(group.members[1], verdicts=[])
            it.agent.view(group)
            await it.shows("  bob │ shall we go?")
            await it.gone("convicted")

    run(play())


def test_an_accountable_group_is_created_with_its_log(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("Message weekend")
            await it.press("f7", "f7")
            await it.shows("These rules stay for good.")
            it.app.screen.query_one("#rule-kind").focus()
            await it.press("left")
            await it.shows("signed, with a witnessed log")
            assert "which shows who withheld one" in str(it.app.screen.query_one("#kind-description").content)
            it.app.screen.query_one("#answer").value = "court"
            await it.press("enter")
            await it.until(lambda: it.agent.count("create_group") == 1)
            (wanted,) = asked(it.agent, "create_group")
            assert (wanted["keys"], wanted["accountability"]) == ("sender-key", "tlog")

    run(play())


@pytest.mark.parametrize(("behind", "said"), [(0, "all of yours,"), (1, "the last one,"), (1200, "last 1,200,")])
def test_unsigned_acknowledgements_in_words(behind, said):
    mine = SignedStream(did="a", nick="alice", messages=1300, last="2026-03-01T10:00:00Z")
    bob = SignedStream(did="b", nick="bob", signed_at="2026-03-01T10:00:00Z", behind=behind)
    found = Evidence(group="g", keys="sender-key", signs=True, streams=[mine, bob])
    ((_, about_me), (_, about_bob)) = proofs.of_streams(found, str)
    assert said in about_bob and "signed for" not in about_me


@pytest.mark.slow
def test_accusing_a_member_and_following_the_case(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 24), setting=accountable("kept")) as it:
            await it.shows("Message weekend")
            await it.say("/cases")
            await it.shows("Cases in weekend", "There are no cases in this group.")
            await it.press("escape")
            await it.say("/accuse nobody-like-that")
            await it.until(lambda: "No member is called" in it.told())
            await it.say("/accuse bob")
            await it.shows("of withholding a")
            await it.press("escape")
            assert not it.agent.accused, "only after confirmation"
            it.agent.refuse["accuse_member"] = Refusal("bob has withheld no message from you.")
            await it.say("/accuse bob")
            await it.shows("bob has withheld no message from you.")
            assert "Accuse bob in the log" not in it.text and it.composer.text == "/accuse bob"
            del it.agent.refuse["accuse_member"]
            await it.say("/accuse bob")
            await it.shows("of withholding a")
            await it.pilot.click("#yes")
            await it.until(lambda: "/cases shows its state" in it.told())
            await it.say("/cases")
            await it.shows("you accuse bob", "not in the log yet")
            (case,) = it.agent.accused
            announced = [AnnouncedVerdict(case.accuser, f"dismissed {HOSTILE}", agrees=False)]
            it.agent.accused = [replace(case, state="decided", verdict="upheld", announced=announced)]
            await it.shows("you accuse bob", "upheld; alice reports: dismissed")
            assert_harmless(it.text)

    run(play())
