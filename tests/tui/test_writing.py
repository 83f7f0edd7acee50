"""Writing in the chat: pasting, completion, and the external editor."""

import os
import stat
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual._xterm_parser import XTermParser
from textual.events import Key
from textual.widgets import Input

from tests.support.machines import machines, until
from tests.support.marks import others_slow
from tests.support.terminals import terminal
from tests.support.tui_pilot import asked, run, scene, weekend
from zerochat.rpc import AnnouncedCommand, MemberInfo
from zerochat.slash_commands import COMMANDS
from zerochat.terminal_text import Printable
from zerochat.tui.composer import completion, editor, paste
from zerochat.tui.composer.emoji import emoji_named
from zerochat.tui.state.preferences import SettingsStore


def said(agent):
    return [params["text"] for params in asked(agent, "send_message")]


# --- pasting --------------------------------------------------------------------------------------------------------

LONG = "\n".join(f"line {number}" for number in range(6))


@pytest.mark.parametrize(
    ("text", "long"),
    [
        ("one", False),
        ("a\nb\nc\nd\ne\n", False),
        (LONG, True),
        ("x" * 65_536, False),
        ("é" * 32_769, True),
        ("\ud800" * 65_537, True),
    ],
    ids=["a word", "five lines", "six lines", "the limit", "beyond the limit", "no text at all"],
)
def test_long_pastes_open_a_dialog(text, long):
    assert paste.is_long(text) is long


JOINED = ["می‌خواهم", "👨‍👩‍👧‍👦 home", "क्‍ष", "a\u00a0b", "東京\u3000駅"]


@pytest.mark.parametrize("text", JOINED)
@pytest.mark.parametrize("pasted", [False, True], ids=["typed", "pasted"])
def test_invisible_characters_of_scripts_survive(tmp_path, text, pasted):
    """As the terminal's parser reports them: Python calls none of the joiners and wide spaces printable."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for place in ("the composer", "a dialog"):
                if place == "a dialog":
                    await it.press("f7")
                    await it.shows("Name of the new group")
                if pasted:
                    await it.paste(text)
                else:
                    for key in XTermParser().feed(text):
                        it.app.post_message(key)
                if place == "the composer":
                    await it.until(lambda: it.composer.text == text)
                    await it.press("enter")
                    await it.until(lambda: said(it.agent) == [text])
                else:
                    await it.until(lambda: it.app.screen.query_one(Input).value == text)

    run(play())


def test_what_a_paste_drops_cannot_be_typed(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in XTermParser().feed("a\u202eb\u00adc\ufeffd"):
                it.app.post_message(key)
            await it.until(lambda: it.composer.text == "abcd")

    run(play())


def test_dropped_paths_are_recognised(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a photo.PNG", "notes.txt", "x.png"):
        (tmp_path / name).touch()
    (tmp_path / "folder.png").mkdir()
    photo = str(tmp_path / "a photo.PNG")
    for text in (
        photo,
        f" '{photo}'\n",
        photo.replace(" ", "\\ "),
        f"file://{photo.replace(' ', '%20')}",
        "~/a photo.PNG",
    ):
        assert paste.file_of(text) == photo, text
    assert paste.file_of(f"file://{tmp_path}/notes.txt") == f"{tmp_path}/notes.txt"
    for text in (
        f"{tmp_path}/notes.txt",  # a path is said as often as a file is meant; a picture's hardly ever
        f"{tmp_path}/folder.png",
        f"{tmp_path}/gone.png",
        f"{photo}\n{photo}",
        "x.png",
        "/" * 5_000 + "x.png",
        "/\x00.png",
        "~nobody-is-called-that/x.png",
        "file://[",
    ):
        assert paste.file_of(text) is None, text


@pytest.mark.parametrize("choice", others_slow(["message", "file", "edit", "cancel"]))
def test_a_long_paste_is_confirmed(tmp_path, choice):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            sent = []
            it.agent._send_files = lambda params: (
                sent.append((params, Path(params.paths[0]).read_text())) or it.agent._send_message(params)
            )
            await it.paste(LONG.replace("\n", "\r\n"))
            await it.shows("You pasted 6 lines (41 bytes).")
            assert it.composer.text == ""
            await it.press(*["down"] * ["message", "file", "edit", "cancel"].index(choice), "enter")
            if choice == "message":
                await it.until(lambda: said(it.agent) == [LONG])
            elif choice == "file":
                await it.until(lambda: sent)
                ((params, text),) = sent
                assert text == LONG
                await it.until(lambda: not Path(params.paths[0]).parent.exists(), "the end of the file")
            elif choice == "edit":
                await it.until(lambda: it.composer.text == LONG)
            else:
                await it.gone("You pasted 6 lines")
                assert it.composer.text == "" and it.composer.has_focus
            assert it.agent.count("send_message") == (choice == "message")

    run(play())


def test_a_paste_does_not_send_the_draft(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("begun ")
            await it.paste(LONG)
            await it.shows("You pasted 6 lines")
            assert "as one message" not in it.text
            await it.press("down", "enter")  # edit first
            await it.until(lambda: it.composer.text == f"begun {LONG}")

    run(play())


@pytest.mark.slow
def test_an_oversized_paste_can_be_a_file(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.paste("é" * 32_769)
            await it.shows("You pasted 1 line (65,538 bytes).")
            assert "as one message" not in it.text and "Send as a file" in it.text and "Edit before sending" in it.text
            await it.press("escape")
            await it.paste("x" * 300_000)
            await it.shows("300,000 bytes")
            assert "Edit before sending" not in it.text

    run(play())


@pytest.mark.slow
def test_a_pasted_picture_path_can_be_sent(tmp_path):
    photo = tmp_path / "photo.png"
    photo.touch()

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            paths = []
            it.agent._send_files = lambda params: paths.append(params.paths) or it.agent._send_message(params)
            await it.paste(str(photo))
            await it.shows("You pasted the path of photo.png.")
            await it.press("enter")
            await it.until(lambda: paths == [[str(photo)]])
            assert photo.exists()
            await it.paste(str(photo))
            await it.shows("You pasted the path of photo.png.")
            await it.press("down", "enter")
            await it.until(lambda: it.composer.text == str(photo))

    run(play())


def test_pastes_over_messages_go_to_the_composer(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.app.chat.pane.focus()
            await it.until(lambda: it.app.chat.pane.has_focus)
            await it.paste("words")
            await it.until(lambda: it.composer.text == "words" and it.composer.has_focus)

    run(play())


def keys(text):
    return [Key("enter", None) if each == "\n" else Key("space" if each == " " else each, each) for each in text]


@pytest.mark.slow
def test_a_paste_as_keys_sends_nothing(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in keys("first line\nsecond\n\nfourth\n"):
                it.app.post_message(key)
            await it.until(lambda: it.composer.text == "first line\nsecond\n\nfourth\n", it.composer.text)
            assert said(it.agent) == []
            await it.until(lambda: not it.composer._in_burst, "the end of the burst")
            await it.press("escape", "escape", "enter")
            await it.until(lambda: said(it.agent) == ["first line\nsecond\n\nfourth"])

    run(play())


@pytest.mark.slow
def test_a_long_paste_as_keys_is_confirmed(tmp_path):
    """They are taken out of the draft again, wherever in it they came."""

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.composer.set_text("see and tell")
            it.composer.cursor_location = (0, 4)
            for key in keys(LONG + "\n"):
                it.app.post_message(key)
            await it.shows("You pasted 6 lines (42 bytes).")
            assert it.composer.text == "see and tell" and it.composer.cursor_location == (0, 4)
            await it.press("down", "enter")  # Not "send" first: there is a draft.
            await it.until(lambda: it.composer.text == f"see {LONG}\nand tell")
            assert said(it.agent) == []

    run(play())


def test_a_fast_line_is_sent(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for key in keys("quick\n"):
                it.app.post_message(key)
            await it.until(lambda: said(it.agent) == ["quick"])

    run(play())


# --- completing -----------------------------------------------------------------------------------------------------

PEOPLE = ["Alice", "Alma", "bob", "dora the second", "小明", "Zoë"]


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("/memb", ["/members "]),
        ("/help getting", ["/help getting-started"]),
        ("/help fi", ["/help files"]),
        ("/xyzzy", []),
        ("/remove a", ["/remove Alice", "/remove Alma"]),
        ("/role bob w", ["/role bob writer"]),
        ("/remove x", []),
        ("/invite ", ["/invite reader"]),
        ("/invite 3", None),
        ("/message c", ["/message carol's agent "]),
        ("/messages x", []),
        ("/message carol hello bo", ["/message carol hello bob "]),
        ("/react rock", ["/react 🚀"]),
        ("/set thema", []),
        ("//memb", None),
        ("b", ["bob: "]),
        ("\nal", ["\nAlice: ", "\nAlma: "]),
        ("AL", ["Alice: ", "Alma: "]),
        ("hello al", ["hello Alice ", "hello Alma "]),
        ("hello b", None),
        ("@", ["@Alice ", "@Alma ", "@bob ", "@dora the second ", "@小明 ", "@Zoë "]),
        ("請問@小", ["請問@小明 "]),
        ("@zoe", ["@Zoë "]),
        ("see @al", ["see @Alice ", "see @Alma "]),
        ("see @x", None),
        ("a :rocke", ["a 🚀 "]),
        ("at 12:30", None),
        (":-", None),
        (":", None),
        ("", None),
        ("hello ", None),
        ("a\nb", None),
    ],
)
def test_completions_by_position(before, found):
    offers = completion.completions(before, PEOPLE, ["carol's agent"])
    texts = None if offers is None else [each.text for each in offers]
    assert texts == found or (found and texts and texts[0] == found[0] and before.endswith(("rock", "rocke")))


BOTS = completion.bot_commands(
    [
        MemberInfo(
            did="did:key:z6MkCi",
            nick="ci",
            connection="connected",
            joined_at="x",
            bot=True,
            commands=[
                AnnouncedCommand("deploy", "ENV [--dry]", "Bring it out", "admin"),
                AnnouncedCommand("ping"),
                AnnouncedCommand("description"),
            ],
        )
    ]
)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("!d", ["!deploy ", "!description "]),
        ("!P", ["!ping "]),
        ("!", ["!deploy ", "!ping ", "!description "]),
        ("!important", None),
        ("!deploy x", None),
        ("so !d", None),
        ("\n!d", None),
    ],
)
def test_bot_commands_complete(before, found):
    offers = completion.completions(before, PEOPLE, (), BOTS)
    assert (offers and [each.text for each in offers]) == found
    assert completion.completions(before, PEOPLE) is None, "nobody listens"


def test_bot_commands_have_usage_hints():
    (hint,) = completion.hints("!deploy ", BOTS)
    assert hint == "!deploy ENV [--dry] (for admin)  ci: Bring it out"
    assert completion.hints("!deploy staging --dry", BOTS) == [hint] and completion.hints("!ping x", BOTS) == [
        "!ping  ci"
    ]
    for other in ("!deploy", "!deployed x", "deploy x", " !deploy x", "!x\ny !deploy x", ""):
        assert completion.hints(other, BOTS) == []
    assert len(completion.hints("!ping ", [*BOTS] * 9)) == completion.LINES_MAX


@pytest.mark.slow
def test_a_command_to_a_bot_is_completed_and_hinted_at(tmp_path):
    def setting(agent):
        weekend(agent)
        group = agent.groups["g1"]
        commands = [AnnouncedCommand("deploy", "ENV", "Bring it out"), AnnouncedCommand("ping")]
        group.members[1] = replace(group.members[1], bot=True, commands=commands)

    async def play():
        async with scene(tmp_path, size=(110, 30), setting=setting) as it:
            await it.shows("seven at the station", "bob bot")
            await it.type("!")
            await it.press("tab")
            await it.shows("!deploy ENV  bob: Bring it out", "!ping  bob")
            await it.press("tab")
            assert it.composer.text == "!deploy "
            await it.type("staging")
            await it.shows("!deploy ENV  bob: Bring it out")
            await it.press("enter")
            await it.gone("!deploy ENV  bob")
            await it.shows("!deploy staging")
            assert asked(it.agent, "send_message")[-1]["text"] == "!deploy staging", "it is a message like any other"
            await it.say("/verify bob")
            await it.shows("bot          yes (self-declared)", "commands     !deploy ENV: Bring it out", "!ping")

    run(play())


def test_every_command_completes():
    labels = [each.label for each in completion.completions("/", [])]
    assert labels == [f"/{name}" for name in COMMANDS]


def test_the_completion_list_is_paged():
    labels = [Printable(f"label{number:02}") for number in range(40)]  # seven cells each
    first, lines, more = completion.window(labels, -1, 34)  # four in a line
    assert (first, [len(line) for line in lines], more) == (0, [4, 4, 4], True)
    first, lines, more = completion.window(labels, 13, 34)
    assert (first, lines[0][0], more) == (12, "label12", True)
    first, lines, more = completion.window(labels, 39, 34)
    assert first == 36 and not more and sum(map(len, lines)) == 4
    assert completion.window([Printable("x" * 99)], 0, 10) == (0, [["x" * 99]], False)


@pytest.mark.slow
def test_tab_cycles(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("/re")
            await it.press("tab")
            await it.shows("/requests  /role") if "/role" in it.text else await it.shows("/requests")
            assert it.composer.text == "/re"
            await it.press("escape")
            await it.until(lambda: not it.app.chat.completion_list.display)
            assert it.composer.has_focus and it.composer.text == "/re"
            await it.press("tab")
            await it.until(lambda: it.app.chat.completion_list.display)
            first = [each.text for each in completion.completions("/re", [])]
            for text in (*first, first[0]):
                await it.press("tab")
                assert it.composer.text == text
            await it.press("shift+tab", "shift+tab")
            assert it.composer.text == first[-2]
            await it.type("x")
            await it.until(lambda: not it.app.chat.completion_list.display)
            it.composer.set_text("say hi to ca and go")
            it.composer.move_cursor((0, len("say hi to ca")))
            await it.press("tab")
            assert it.composer.text == "say hi to carol  and go"
            assert it.composer.cursor_location == (0, len("say hi to carol "))
            it.composer.set_text("")
            await it.press("tab")
            assert not it.composer.has_focus
            await it.press("shift+tab")
            assert it.composer.has_focus

    run(play())


def test_connections_complete(tmp_path):
    def setting(agent):
        weekend(agent)
        agent._open_connection(agent_params("carol's agent"))

    def agent_params(name):
        from zerochat.rpc import OpenConnectionParams

        return OpenConnectionParams("x", name, False)

    async def play():
        async with scene(tmp_path, setting=setting) as it:
            await it.shows("seven at the station")
            await it.type("/message ")
            await it.until(lambda: it.app.chat.connections == ["carol's agent"])
            await it.type("ca")
            await it.press("tab")
            assert it.composer.text == "/message carol's agent "

    run(play())


def test_command_arguments_complete(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()

    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            for typed, becomes in (
                ("/telemetry st", "/telemetry status"),
                ("/telemetry ex", "/telemetry export"),
                ("/telemetry export st", "/telemetry export studies/"),
                ("/mute no", "/mute none"),
            ):
                it.composer.text = ""
                await it.type(typed)
                await it.press("tab")
                assert it.composer.text.rstrip() == becomes
            it.composer.text = ""
            await it.type("/telemetry al")
            await it.press("tab")
            assert it.composer.text == "/telemetry al", "people are nothing that it could be told"

    run(play())


# --- an editor of one's own -----------------------------------------------------------------------------------------


def script(folder, name, body):
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, pathlib, stat, sys\npath = pathlib.Path(sys.argv[-1])\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_editor_command(monkeypatch):
    monkeypatch.setenv("EDITOR", "emacs -nw")
    monkeypatch.delenv("VISUAL", raising=False)
    assert editor.command() == ["emacs", "-nw"]
    monkeypatch.setenv("VISUAL", "'/a b/vi' -c 'set tw=70; $(x)'")
    assert editor.command() == ["/a b/vi", "-c", "set tw=70; $(x)"]
    monkeypatch.setenv("VISUAL", "vi 'x")
    with pytest.raises(editor.EditorFailed, match=r"\$VISUAL is not a valid command"):
        editor.command()
    monkeypatch.delenv("VISUAL")
    monkeypatch.setenv("EDITOR", " ")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(editor.NoEditor, match="VISUAL or EDITOR"):
        editor.command()


def test_the_editor_file_is_private_and_erased(tmp_path, monkeypatch):
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    seen = tmp_path / "seen"
    body = f"""
assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
pathlib.Path({str(seen)!r}).write_text(str(path) + "\\n" + path.read_text())
path.with_name("message.txt~").write_text("a copy")
path.write_text("two\\r\\nlines\\n")
"""
    monkeypatch.setenv("VISUAL", f"'{script(tmp_path, 'an editor', body)}' --wait")
    assert editor.edit("before\nit") == "two\nlines"
    place, _, text = seen.read_text().partition("\n")
    assert Path(place).is_relative_to(runtime) and text == "before\nit"
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("sys.exit(3)", "ended with code 3"),
        ("os.kill(os.getpid(), 9)", "ended with signal 9"),
        ("path.unlink()", "could not be started"),
        ("path.write_bytes(b'x' * (1 << 21))", "is saved in"),
    ],
)
def test_a_failing_editor_changes_nothing(tmp_path, monkeypatch, body, why):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("VISUAL", str(script(tmp_path, "editor", body)))
    with pytest.raises((editor.EditorFailed, editor.EditedTextTooLong), match=why):
        editor.edit("precious")
    left = [path for path in tmp_path.iterdir() if path.is_dir()]
    assert len(left) == ("saved" in why)


def test_a_missing_editor_is_reported(monkeypatch):
    monkeypatch.setenv("VISUAL", "/nowhere/vi")
    with pytest.raises(editor.EditorFailed, match="vi could not be started: no such file"):
        editor.edit("x")


def test_temporary_files_are_overwritten(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = paste.write_temporary("a secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    link = tmp_path / "another name"
    os.link(path, link)
    paste.erase(path)
    assert link.read_bytes() == bytes(8) and not path.parent.exists()


def test_a_terminal_that_cannot_run_an_editor(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            await it.type("precious")
            await it.press("alt+e")
            await it.until(lambda: "cannot run an editor" in it.told())
            assert it.composer.text == "precious"

    run(play())


@pytest.mark.slow
def test_the_editor_in_a_real_terminal(tmp_path):
    body = """
text = path.read_text()
print("EDITOR HAS", repr(text), flush=True)
answer = sys.stdin.readline().strip()
if answer == "fail":
    sys.exit(9)
path.write_text(f"{text} and {answer}\\nsecond \\x1b[2Jline\\n")
"""
    with machines(tmp_path, ("alice",)) as (alice,):
        group = alice.client.create_group("hikers").id
        alice.environment["VISUAL"] = str(script(tmp_path, "editor", body))
        with terminal(alice) as one:
            one.shows("hikers")
            one.type("begun")
            until(lambda: alice.client.list_drafts() == {group: "begun"}, "the draft")
            one.type("\x1be")
            one.shows("EDITOR HAS 'begun'")
            one.type("\x03")  # the editor's, not ours
            until(lambda: one.process.poll() is not None or one.shown.count("EDITOR HAS") == 1, "nothing worse")
            one.shows("ended with")
            one.type("\x1be")
            until(lambda: one.shown.count("EDITOR HAS 'begun'") == 2, "the editor again")
            one.type("more\r")
            until(lambda: alice.client.list_drafts() == {group: "begun and more\nsecond ␛[2Jline"}, "what came back")
            assert alice.client.get_history("hikers").events[-1].type == "group_created", "nothing was sent"
            one.type("\x1be")
            until(lambda: one.shown.count("EDITOR HAS") == 3, "the editor once more")
            one.type("fail\r")
            one.shows("ended with code 9")
            until(
                lambda: alice.client.list_drafts() == {group: "begun and more\nsecond ␛[2Jline"}, "the draft as it was"
            )


@pytest.mark.parametrize(
    ("name", "emoji"),
    [("+1", "👍"), (":thumbsup:", "👍"), ("thumbsdown", "👎"), ("tada", "🎉"), ("thumbs up sign", "👍"), ("zzz", None)],
)
def test_emoji_have_the_names_of_other_chats(name, emoji):
    assert emoji_named(name) == emoji


# --- the composer itself --------------------------------------------------------------------------------------------


def test_deleted_text_can_be_yanked(tmp_path):
    async def play():
        async with scene(tmp_path, setting=weekend) as it:
            await it.shows("seven at the station")
            it.composer.set_text("one two three\nfour five")
            for key, left, killed in [
                ("ctrl+w", "one two three\nfour ", "five"),
                ("ctrl+u", "one two three\n", "four "),
            ]:
                await it.press(key)
                assert (it.composer.text, it.composer._killed) == (left, killed)
            it.composer.move_cursor((0, 4))
            await it.press("alt+d")
            assert it.composer.text.split() == ["one", "three"]
            await it.press("ctrl+y", "ctrl+y")
            assert it.composer.text.split() == ["one", "twotwo", "three"]
            await it.press("alt+k")
            assert it.composer.text == "one twotwo\n"
            await it.press("ctrl+y", "ctrl+z")
            assert it.composer.text == "one twotwo\n"
            await it.press("alt+z")
            assert it.composer.text == "one twotwo three\n"

    run(play())


@pytest.mark.parametrize("keymap", ["default", "vim", "emacs"])
def test_keys_of_a_line_go_over_its_wraps(tmp_path, keymap):
    """As in a shell: a line ends at its line break, not at the edge of the window."""
    long = "many words " * 12

    async def play():
        store = SettingsStore(overrides={"chat.keymap": keymap})
        async with scene(tmp_path, setting=weekend, settings_store=store) as it:
            await it.shows("seven at the station")
            it.composer.set_text(f"first\n{long}")
            await it.until(lambda: it.composer.size.height > 2, "a wrapped line")
            await it.press("ctrl+a")
            assert it.composer.cursor_location == (1, 0)
            await it.press("ctrl+e")
            assert it.composer.cursor_location == (1, len(long))
            await it.press("ctrl+u")
            assert (it.composer.text, it.composer._killed) == ("first\n", long)
            await it.press("ctrl+u", "ctrl+y")
            assert it.composer.text == "first\n", "at the start of a line, the break before it"
            it.composer.set_text(long)
            it.composer.move_cursor((0, 4))
            await it.press("alt+k")
            assert it.composer.text == "many"

    run(play())


@pytest.mark.slow
def test_the_composer_grows_to_a_third(tmp_path):
    async def play():
        for height in (24, 48):
            async with scene(tmp_path, size=(80, height), setting=weekend) as it:
                await it.shows("seven at the station")
                it.composer.set_text("\n".join(["line"] * 40))
                await it.until(lambda height=height: it.composer.outer_size.height == height * 34 // 100)
                assert it.app.chat.pane.size.height > height // 3

    run(play())
