"""The terminal application on what can be proven: the sheet, the file of a proof, and what is said of deniability."""

import pytest
from msgspec.structs import replace

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import HOSTILE, asked, assert_harmless, run, scene, weekend
from zerochat.presentation import proofs
from zerochat.rpc import Author, Evidence, LogKeptNews, LogSplitNews, LogStalledNews, SignedStream, ToldVerdict
from zerochat.tui.composer import commands
from zerochat.tui.composer.completion import offers
from zerochat.tui.dialogs.dialog import Body
from zerochat.tui.dialogs.evidence import EvidenceSheet
from zerochat.tui.state.preferences import Choices

pytestmark = pytest.mark.usefixtures("utc")
SIZES = [(80, 24), (100, 30), (200, 50)]


def signing(agent):
    weekend(agent)
    group = agent.groups["g1"]
    group.info = replace(group.info, keys="sender-key")


def told_in(it):
    """All that stands in the sheet, in one line."""
    return " ".join(str(it.app.screen.query_one(Body).content).split())


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_what_can_be_proven_of_a_group(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=signing, choices=Choices()) as it:
            await it.shows("seven at the station")
            await it.say(f"/set theme {theme}")
            await it.say("/evidence")
            await it.until(lambda: it.app.theme == theme)
            await it.shows("What can be proven in weekend", "Esc closes")
            assert "has signed for all of yours, at" in told_in(it)
            assert "carol" in it.text and "has signed for nothing of yours" in told_in(it)
            assert "any member can show it to anybody, for good, and you cannot deny it." in told_in(it)
            assert not it.app.screen.query("#write"), "there is no message to prove"
            await it.press("w", "escape")
            await it.until(lambda: it.app.screen is it.app.chat)
            assert it.agent.count("proof") == 0

    run(play())


@pytest.mark.parametrize("size", SIZES)
def test_a_proof_is_written_from_the_sheet_of_a_message(tmp_path, size):
    target = tmp_path / "a folder"
    target.mkdir()

    async def play():
        async with scene(tmp_path, size=size, setting=signing) as it:
            await it.shows("seven at the station")
            await it.press("up", "E")
            await it.shows("What can be proven of it", "You: seven at the station", "✓ bob  has signed for it, at")
            assert "You can show anybody that bob has it: by their signatures." in told_in(it)
            assert "Of carol it is not known" in told_in(it)
            await it.press("w")
            await it.shows("Where to write the proof", "nothing is overwritten")
            field = it.app.screen.query_one("#answer")
            assert field.value.endswith("/weekend-e000004.zproof")
            field.value = str(target)
            await it.press("enter")
            await it.until(lambda: "Proof written to" in it.told())
            said = it.told()
            assert f"{target}/weekend-e000004.zproof" in said and "1 signed message, and 1 member" in said
            assert "You: seven at the station" in said and "can pass it on" in said

    run(play())
    (file,) = target.iterdir()
    assert file.name == "weekend-e000004.zproof" and file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().splitlines()[1] == '{"message":"e000004"}'


def test_a_folder_for_downloads_that_is_not_there_yet_is_made(tmp_path, monkeypatch):
    monkeypatch.setenv("ZEROCHAT_HOME", str(tmp_path / "home"))

    async def play():
        async with scene(tmp_path, setting=signing) as it:
            await it.shows("seven at the station")
            await it.press("up", "E")
            await it.shows("What can be proven of it")
            await it.press("w")
            await it.shows("Where to write the proof")
            await it.press("enter")
            await it.until(lambda: "Proof written to" in it.told())

    run(play())
    (file,) = (tmp_path / "home").rglob("*.zproof")
    assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_what_is_there_is_not_written_over(tmp_path):
    file = tmp_path / "mine.zproof"
    file.write_text("mine")

    async def play():
        async with scene(tmp_path, setting=signing) as it:
            await it.shows("seven at the station")
            await it.say(f"/proof {file}")
            await it.until(lambda: "is there already, and was left as it is" in it.told())
            await it.say("/proof /nowhere/at/all/x.zproof")
            await it.until(lambda: "/nowhere/at/all" in it.told())
            await it.press("up", "E")
            await it.shows("What can be proven of it")
            await it.pilot.click("#write")
            await it.shows("Where to write the proof")
            it.app.screen.query_one("#answer").value = str(file)
            await it.press("enter")
            await it.until(lambda: "is there already" in it.text.replace("\n", " "))
            assert it.app.screen.query_one("#answer").value == str(file), "to be mended"

    run(play())
    assert file.read_text() == "mine"


@pytest.mark.slow
def test_which_message_is_meant(tmp_path):
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
                await it.until(lambda count=number + 1: it.agent.count("proof") == count, line)
                assert asked(it.agent, "proof")[-1]["id"] == event
            await it.until(lambda: (tmp_path / "a b.zproof").exists())
            await it.press("up", "up")
            it.composer.put(f"/proof {tmp_path}/3.zproof")
            it.composer.focus()
            await it.press("enter")
            await it.until(lambda: (tmp_path / "3.zproof").exists())
            for line, answer in [
                ("/proof", "/proof takes where to write it"),
                ("/proof last", "/proof takes a path too"),
                (f"/proof nothing {tmp_path}/4.zproof", "There is no event nothing"),
            ]:
                await it.say(line)
                await it.until(lambda answer=answer: answer in it.told(), line)
            assert not (tmp_path / "4.zproof").exists()

    run(play())


def test_where_nothing_is_signed_there_is_nothing_to_prove(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.say(f"/proof {tmp_path}/x.zproof")
            await it.until(lambda: "nobody can prove it" in it.told())
            await it.press("up", "E")
            await it.shows("What can be proven of it")
            assert "No message here is signed by itself" in told_in(it) and "you can deny it until" in told_in(it)
            assert not it.app.screen.query("#write")
            await it.press("escape", "escape")
            it.agent.refuse["evidence"] = Refusal("The group is gone.")
            await it.say("/evidence")
            await it.until(lambda: "The group is gone." in it.told())
            assert not isinstance(it.app.screen, EvidenceSheet)

    run(play())
    assert not (tmp_path / "x.zproof").exists()


def test_what_others_are_called_and_say_does_nothing(tmp_path):
    def setting(agent):
        signing(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, name=HOSTILE)
        group.members[1] = replace(group.members[1], nick=HOSTILE)
        agent.post(group, 1, HOSTILE, minute=9)

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            await it.press("up", "E")
            await it.shows("What can be proven of it")
            assert_harmless(it.text)
            await it.press("w")
            await it.shows("Where to write the proof")
            assert_harmless(it.text)
            name = it.app.screen.query_one("#answer").value.rpartition("/")[2]
            assert name.endswith("-e000006.zproof") and "/" not in name
            await it.press("escape", "escape", "escape")
            await it.say("/evidence")
            await it.shows("What can be proven in")
            assert_harmless(it.text)

    run(play())


def test_paths_and_messages_are_completed(tmp_path, monkeypatch):
    (tmp_path / "proofs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert commands.names_for("/proof pr", []) == ["proofs/"]
    assert commands.names_for("/proof la", []) == ["last "]
    assert commands.names_for("/proof last pr", []) == ["last proofs/"]
    found = offers("/proof last:bob pr", [])
    assert found is not None and [one.text for one in found] == ["/proof last:bob proofs/"]


# --- what one gives up ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("size", SIZES)
def test_what_a_signature_gives_up_is_said_before_anything_is_said(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=weekend, choices=Choices()) as it:
            await it.shows("Message weekend")
            assert "signed" not in it.text
            await it.say(f"/set theme {theme}")
            await it.press("f7", "f7")
            await it.shows("For good. Arrows choose:")
            keys = it.app.screen.query_one("#rule-keys")
            keys.focus()
            await it.press("right", "right")
            await it.shows("one envelope for all, signed by who says it")
            about = it.app.screen.query_one("#keys-about")
            assert "Any member can show what you say to anybody, for good: you cannot deny it." in str(about.content)
            await it.until(lambda: about.region.bottom <= it.app.screen.size.height, "all of it in sight")
            it.app.screen.query_one("#answer").value = "court"
            await it.press("enter")
            await it.until(lambda: it.app.screen is it.app.chat and it.open.info.name == "court")
            await it.until(lambda: str(it.composer.placeholder) == "Message court: what you say here is signed")
            await it.until(lambda: "court: What you say here is signed" in it.told())
            assert it.app.theme == theme

    run(play())


def test_whoever_has_joined_is_told_what_a_signature_gives_up(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("Message weekend")
            await it.press("f8")
            await it.shows("Join a group")
            await it.paste("https://zerochat.org/?_oob=x")
            await it.press("enter")
            await it.until(lambda: it.agent.count("join") == 1)
            group = it.agent.add_group("court", ["dora"])
            group.info = replace(group.info, keys="sender-key")
            it.agent.joining("joined", "You are in.", group=group.info.id)
            await it.until(lambda: str(it.composer.placeholder) == "Message court: what you say here is signed")
            await it.until(lambda: "you cannot deny it" in it.told())

    run(play())


# --- the log ----------------------------------------------------------------------------------------------------------


def accountable(state):
    def setting(agent):
        signing(agent)
        group = agent.groups["g1"]
        group.info = replace(group.info, accountability="ledger", log=state)

    return setting


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_how_the_log_stands(tmp_path, size, theme):
    async def play():
        async with scene(tmp_path, size=size, setting=accountable("kept"), choices=Choices()) as it:
            await it.shows("seven at the station")
            await it.say(f"/set theme {theme}")
            await it.until(lambda: it.app.theme == theme)
            await it.say("/evidence")
            await it.shows("What can be proven in weekend")
            said = told_in(it)
            assert "kept by bob" in said and "witnesses alice, bob and carol; 2 of 3 have to cosign" in said
            assert "you witness it" in said and "12 cosigned (12 messages); all that was posted before" in said
            assert "can show that it was withheld" in said
            group = it.agent.groups["g1"]
            group.info = replace(group.info, log="stalled")
            await it.until(lambda: "1 of yours, since" in told_in(it), "that the sheet is asked again")
            assert "The log stands still" in told_in(it)

    run(play())


def test_what_becomes_of_the_log_is_told(tmp_path):
    def setting(agent):
        accountable("unkept")(agent)
        group = agent.groups["g1"]
        keepers = [{"did": one.did, "nick": one.nick} for one in group.members]
        agent._log(group, 0, "terms_set", {"operator": keepers[1], "witnesses": keepers}, minute=4)
        agent._log(group, 0, "terms_set", {"operator": "x", "witnesses": {"nick": HOSTILE}}, minute=5)

    async def play():
        async with scene(tmp_path, size=(160, 30), setting=setting) as it:
            await it.shows("alice says: the log is kept by bob, witnessed by alice, bob and")
            await it.shows("alice says: the log is kept by ?, witnessed by ?", "not accountable yet")
            assert_harmless(it.text)
            group = it.agent.groups["g1"]
            bob = Author(group.members[1].did, "bob")
            it.agent.tell("log_kept", LogKeptNews(group="g1", members_lacking=2))
            await it.until(lambda: "it takes three members to witness its log; two more have to join" in it.told())
            group.info = replace(group.info, log="stalled")
            it.agent.tell("log_stalled", LogStalledNews("g1", "2025-11-20T12:10:00.000Z"))
            await it.shows("log stands still")
            await it.until(lambda: "you cannot show that it was delivered" in it.told())
            group.info = replace(group.info, log="split")
            it.agent.tell("log_split", LogSplitNews("g1", bob))
            await it.shows("two logs")
            await it.until(lambda: "bob has shown two different logs, and signed both" in it.told())
            await it.press("escape")
            await it.say("/help")
            it.agent.tell("log_kept", LogKeptNews(group="g2", operator=bob, witnesses=[bob, bob, bob]))
            await it.until(lambda: "work: The log is kept by bob, witnessed by bob, bob and bob." in it.told())

    run(play())


def test_whoever_was_convicted_has_a_badge_where_its_name_stands(tmp_path):
    def setting(agent):
        accountable("kept")(agent)
        group = agent.groups["g1"]
        group.members[1] = replace(group.members[1], guilty=["upheld", "forked", "from a later version"])

    async def play():
        async with scene(tmp_path, size=(110, 30), setting=setting) as it:
            await it.shows("bob§ │ shall we go?", "● bob § convicted")
            await it.say("/members")
            await it.press("home", "enter")
            await it.shows("§ convicted")
            said = told_in(it)
            assert "has withheld a message, has signed two messages in one place and has broken the rules" in said
            await it.press("escape")
            group = it.agent.groups["g1"]
            group.members[1] = replace(group.members[1], guilty=[])
            it.agent.view(group)
            await it.shows("  bob │ shall we go?")
            await it.gone("convicted")

    run(play())


def test_an_accountable_group_is_created_with_its_log(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("Message weekend")
            await it.press("f7", "f7")
            await it.shows("For good. Arrows choose:")
            it.app.screen.query_one("#rule-keys").focus()
            await it.press("left")
            await it.shows("signed, with a log that members witness")
            assert "who has withheld what" in str(it.app.screen.query_one("#keys-about").content)
            it.app.screen.query_one("#answer").value = "court"
            await it.press("enter")
            await it.until(lambda: it.agent.count("new") == 1)
            (wanted,) = asked(it.agent, "new")
            assert (wanted["keys"], wanted["accountability"]) == ("sender-key", "ledger")

    run(play())


@pytest.mark.parametrize(("behind", "said"), [(0, "all of yours,"), (1, "the last one,"), (1200, "last 1,200,")])
def test_how_much_somebody_has_not_signed_for_is_said_in_words(behind, said):
    mine = SignedStream(did="a", nick="alice", messages=1300, last="2026-03-01T10:00:00Z")
    bob = SignedStream(did="b", nick="bob", signed_at="2026-03-01T10:00:00Z", behind=behind)
    found = Evidence(group="g", keys="sender-key", signs=True, streams=[mine, bob])
    ((_, about_me), (_, about_bob)) = proofs.of_streams(found, str)
    assert said in about_bob and "signed for" not in about_me


@pytest.mark.slow
def test_somebody_is_accused_and_what_comes_of_it_is_shown_as_it_comes(tmp_path):
    async def play():
        async with scene(tmp_path, size=(80, 24), setting=accountable("kept")) as it:
            await it.shows("Message weekend")
            await it.say("/cases")
            await it.shows("Cases in weekend", "Nobody is accused of anything here.")
            await it.press("escape")
            await it.say("/accuse nobody-like-that")
            await it.until(lambda: "Nobody here is called" in it.told())
            await it.say("/accuse bob")
            await it.shows("withholds a message from you?")
            await it.press("escape")
            assert it.agent.count("accuse") == 0, "it takes a yes"
            await it.say("/accuse bob")
            await it.shows("withholds a message from you?")
            await it.pilot.click("#yes")
            await it.until(lambda: "/cases shows what comes of it" in it.told())
            await it.say("/cases")
            await it.shows("you accuse bob", "not in the log yet")
            (case,) = it.agent.accused
            told = [ToldVerdict(case.accuser, f"dismissed {HOSTILE}", agrees=False)]
            it.agent.accused = [replace(case, state="decided", verdict="upheld", told=told)]
            await it.shows("you accuse bob", "upheld; alice says: dismissed")
            assert_harmless(it.text)

    run(play())
