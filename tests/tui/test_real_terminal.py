"""The chat as people use it: through a real terminal at two sizes, with real agents."""

import json
import re

import pytest
from PIL import Image

from tests.support import tmux_chats
from tests.support.machines import GROUP, meet, until
from zerochat.agent.invitations.qr_pictures import read_code

EMPTY = "Message friends (messages are signed)"
pytestmark = pytest.mark.slow
desk = tmux_chats.desk

FAMILY, PERSIAN = "👨\u200d👩\u200d👧", "می\u200cخواهم"

# --- groups and the first run -----------------------------------------------------------------------------------------


def test_a_group_is_left_forgotten_and_joined_again(desk):
    alice, bob = desk.people("alice", "bob")
    meet(alice, bob)
    alice.client.send_message(GROUP, "said before")
    chat = desk.window("bob")
    chat.has("said before")
    chat.enter("/leave")
    chat.has("Leave friends?")
    chat.press("y")
    chat.has("You left friends")
    until(lambda: bob.group().state == "left", "that alice knows it")
    chat.enter("/forget")
    chat.has("Forget friends?")
    chat.press("y")
    chat.has("No conversations yet.")
    chat.paste(f"/join {alice.client.create_invitation(GROUP).code}")
    chat.press("Enter")
    chat.has("Message friends")
    alice.client.send_message(GROUP, "said after")
    chat.has("said after")
    chat.enter("and heard")
    assert "Loading" not in chat.still("said after", "and heard  ✓1/1")


def newcomer(desk, passphrase=""):
    """The chat of the first run, at its choices."""
    chat = desk.window("alice")
    chat.has("Your name, as other members see it")
    chat.enter("Alice")
    chat.has("A passphrase (optional)")
    chat.enter(passphrase)
    if passphrase:
        chat.has("The passphrase again")
        chat.enter(passphrase)
        chat.has("The passphrase is set.")
    chat.has("1  Create a group", "2  Join a group")
    return chat


def test_the_first_run_takes_a_second_choice(desk):
    chat = newcomer(desk)
    chat.press("2", "Enter")
    chat.has("Paste the invitation")
    chat.press("Escape")
    chat.has("No conversations yet.")
    chat.press("F7")
    chat.has("Name of the new group")
    chat.enter("hikers")
    assert "exists" not in chat.still("Message hikers")


def test_the_passphrase_of_the_first_run_opens_the_profile(desk):
    chat = newcomer(desk, "two birds")
    assert "birds" not in chat.text()
    chat.press("1")
    chat.has("Name of the new group")
    chat.enter("hikers")
    chat.has("Message hikers")
    chat.press("C-q")
    chat.ends()
    again = desk.window("alice")
    again.has("assphrase")
    again.enter("three birds")
    again.has("Wrong passphrase")
    again.enter("two birds")
    again.has("Message hikers")


def test_a_restart_reports_nothing_missing(desk):
    """Eleven times: messages of the meantime arrive, and the header says that all is there."""
    alice, bob = desk.people("alice", "bob")
    meet(alice, bob)
    alice.kill()
    for start in range(6 if desk.columns == 80 else 5):
        for number in range(30):
            bob.client.send_message(GROUP, f"{start}-{number}")
        chat = desk.window("alice")  # with an agent of its own
        chat.has(f"{start}-29", "1/1 connected")
        chat.until(lambda shown: " · complete " in shown.rows[0] and "missing" not in shown, "complete")
        chat.press("C-q")
        chat.ends()


# --- typing -----------------------------------------------------------------------------------------------------------


def test_letters_of_every_script_are_typed(desk):
    [alice] = desk.people("alice")
    group = alice.client.create_group(GROUP).id
    alice.client.send_message(group, "the bridge at eight")
    chat = desk.window("alice")
    chat.has("the bridge at eight")
    chat.type(f"{PERSIAN} {FAMILY}!")
    chat.until(lambda shown: "!" in shown.composer, "the text in the composer")
    chat.press("Enter")
    until(lambda: f"{PERSIAN} {FAMILY}!" in alice.texts(), "the message with its joiners")
    chat.press("Up")
    chat.has("▌", "A message is selected")
    chat.type("dinner")
    chat.until(lambda shown: shown.composer == "dinner", "all letters in the composer")
    chat.press("Enter")
    until(lambda: alice.texts()[2:] == ["dinner"], "the message")


def test_the_vim_keymap_edits_the_composer(desk):
    [alice] = desk.people("alice")
    alice.client.create_group(GROUP)
    chat = desk.window("alice", keymap="vim")
    chat.has("Message friends")
    chat.type("hello wrold")
    chat.press("Escape")
    chat.has("NORMAL")
    chat.type("bcw")
    chat.until(lambda shown: "NORMAL" not in shown.status, "insert mode")
    chat.type("world")
    chat.press("Escape")
    chat.type("0x")
    chat.until(lambda shown: shown.composer == "ello world", "the edited text")
    chat.press("Enter")
    until(lambda: alice.texts() == ["ello world"], "the message")


def test_two_chats_on_one_profile_keep_their_texts(desk):
    [alice] = desk.people("alice")
    group = alice.client.create_group(GROUP).id
    one, two = desk.window("alice"), desk.window("alice")
    for chat in (one, two):
        chat.has("Message friends")
    one.type("of the first")
    until(lambda: "of the first" in alice.client.list_drafts().get(group, ""), "the first draft")
    two.type("of the second")
    until(lambda: "of the second" in alice.client.list_drafts()[group], "the second draft")
    assert "of the first" in alice.client.list_drafts()[group]
    two.press("Enter")
    for chat, composer in ((one, "of the first"), (two, EMPTY)):
        chat.has("of the second")
        chat.until(lambda shown, composer=composer: shown.composer == composer, "its own text")
    until(lambda: alice.client.list_drafts() == {group: "of the first"}, "the draft of the first")
    one.press("Enter")
    until(lambda: alice.texts() == ["of the second", "of the first"], "both messages")


# --- invitations ------------------------------------------------------------------------------------------------------


def picture(shown):
    """The half blocks of a screen as a picture, dark on light."""
    found = Image.new("L", (200, 2 * len(shown.rows)), 255)
    for y, row in enumerate(shown.rows):
        for x, char in enumerate(row):
            for half in (half for half in range(2) if char in ("█", "▀▄"[half])):
                found.putpixel((x, 2 * y + half), 0)
    return found.resize((6 * found.width, 6 * found.height), Image.Resampling.NEAREST)


def test_the_code_behind_a_mediator_is_read_from_the_screen(desk):
    """An invitation of a member without an address fits 80x24, and the joiner scans it."""
    mediator = desk.mediator()
    alice = desk.people("alice", "bob")[0]
    alice.kill()
    alice.places.config.write_text("[network]\nhidden = true\n")
    alice.start()
    desk.run("alice", "route", "add", mediator.link)
    alice.client.create_group(GROUP)
    chat = desk.window("alice")
    chat.has("Message friends")
    chat.press("F3")
    shown = chat.still("Invitation to friends", "?_oobid=", "█▀▀▀▀▀█")
    path = desk.folder / "code.png"
    picture(shown).save(path)
    link = read_code(path)
    beside = "".join(row[38:].strip() for row in shown.rows)
    assert link.startswith(mediator.link.partition("?")[0]) and link in beside
    desk.run("bob", "join", "--image", str(path))
    chat.has("✓ used by bob")
    chat.press("Escape")
    chat.enter("/invite reader for Carol")
    chat.has("Invitation to friends (for Carol)", "read only. This group has no admins")
    chat.press("o")
    chat.has("Open invitations to friends", "for Carol: 0 of 1 joined")


# --- errors and dialogs -----------------------------------------------------------------------------------------------


def test_a_rejected_command_comes_back_with_its_error(desk):
    """The error takes rows from the oldest messages, not from the newest."""
    [alice] = desk.people("alice")
    alice.client.create_group(GROUP)
    for number in range(desk.lines):
        alice.client.send_message(GROUP, f"message {number}")
    chat = desk.window("alice")
    newest = chat.still(f"message {desk.lines - 1}").messages[-3:]
    for line in ("/kick Nobody", "/goto nowhere"):
        chat.enter(line)
        word = line.split()[1]
        chat.until(lambda shown, word=word: word in shown.status, "the error")
        shown = chat.still(word)
        assert shown.composer == line and word not in "".join(shown.messages)
        assert shown.messages[-3:] == newest
        chat.press("C-u")
        chat.until(lambda shown: shown.composer == EMPTY, "an empty composer")


def test_a_paste_into_the_join_box_keeps_its_text(desk):
    desk.people("alice")
    path = desk.folder / "code.png"
    path.touch()
    chat = desk.window("alice")
    chat.has("No conversations yet.")
    chat.press("F8")
    chat.has("Paste the invitation")
    chat.type("Join us: ")
    chat.paste("at eight ")
    chat.has("Join us: at eight")
    chat.paste(str(path))
    chat.has("Cannot read the picture Join us: at eight")
    unwrapped = chat.until(lambda shown: "directory." in shown, "the reason").replace("│", " ").split()
    assert "No such file or directory." in " ".join(unwrapped)


OPENERS = {
    "F1": "Help",
    "F3": "Invitation to friends",
    "F8": "Paste the invitation",
    "F10": "Leave friends?",
    "C-p": "Search for commands",
    "C-f": "Search messages",
    "Up": "A message is selected",
}


def test_ctrl_q_quits_everywhere(desk):
    [alice] = desk.people("alice")
    group = alice.client.create_group(GROUP).id
    alice.client.send_message(group, "the bridge at eight")
    chats = {opener: desk.window("alice") for opener in OPENERS}
    for opener, chat in chats.items():
        chat.has("the bridge at eight")
        chat.press(opener)
        chat.has(OPENERS[opener])
        chat.press("C-q")
    chats["the first run"] = desk.window("bob")
    chats["the first run"].has("Welcome to zerochat")
    chats["the first run"].press("C-q")
    for chat in chats.values():
        chat.ends()


# --- what hands expect ------------------------------------------------------------------------------------------------


def list_cells(shown):
    """The width of the list of conversations; 0: it is hidden."""
    return next((row.index("│") for row in shown.messages if row.startswith(" 1 friends")), 0)


def text_cells(shown):
    """The width that a long message of x has."""
    return max(map(len, re.findall("x+", shown)), default=0)


def test_the_conversation_list_is_resized_and_hidden(desk):
    [alice] = desk.people("alice")
    group = alice.client.create_group(GROUP).id
    for word in ("x" * 500, "read this"):
        alice.client.send_message(group, word)
    chat = desk.window("alice")
    list_width = list_cells(chat.still("xxx", "read this"))
    chat.press("M-S-Left", "M-S-Left")
    chat.until(lambda shown: list_cells(shown) == list_width - 2, "a narrower list")
    edge = list_width - 1  # columns of the mouse begin with 1
    chat.mouse(f"0;{edge};4M")
    moves = iter(range(100))

    def widened(shown):
        """A hand moves the mouse many times; the moves before the program has taken the border are lost."""
        done = list_cells(shown) == list_width + 4
        if not done:
            chat.mouse(f"32;{edge + 6};{6 + next(moves) % 2}M")
        return done

    chat.until(widened, "a list that the mouse has widened")
    chat.mouse(f"0;{edge + 6};6m")
    chat.press("M-l")
    chat.until(lambda shown: list_cells(shown) == 0 and text_cells(shown) >= 55, "the text in its place")
    chat.press("M-l")
    chat.until(lambda shown: list_cells(shown) == list_width + 4, "the list as before")


def test_times_and_names_have_the_wanted_format(desk):
    [alice] = desk.people("alice")
    group = alice.client.create_group(GROUP).id
    alice.client.send_message(group, "the bridge at eight")
    chat = desk.window("alice")
    chat.has("the bridge at eight")
    chat.enter("/set time_format %H.%M.%S")
    chat.until(lambda shown: re.search(r"\d\d\.\d\d\.\d\d +alice │ the bridge", shown), "the format of times")
    chat.enter("/set nick_width 3")
    chat.until(lambda shown: re.search(r"\d\d\.\d\d\.\d\d al… │ the bridge", shown), "the width of names")


def test_names_of_commands_in_other_chats(desk):
    alice, bob = desk.people("alice", "bob")
    meet(alice, bob)
    bob.client.send_message(GROUP, "the bridge at eight")
    chat = desk.window("alice")
    chat.has("the bridge at eight")
    chat.enter("/nick Alicia")
    until(lambda: any(each.nick == "Alicia" for each in bob.client.list_members(GROUP)), "the new name")
    chat.enter("/names")
    chat.still("bob", "Alicia")  # both were on the screen before
    chat.press("Escape")
    chat.enter("/whois bob")
    chat.still("admitted by", "did:key:")
    chat.press("Escape")
    chat.enter("/ignore bob")
    chat.until(lambda shown: "the bridge at eight" not in shown, "fewer messages")
    chat.enter("/unignore bob")
    chat.has("the bridge at eight")
    chat.enter("/part")
    chat.has("Leave friends?")


def test_mentions_pins_and_ownership(desk):
    alice, bob = desk.people("alice", "bob")
    meet(alice, bob, roles="admins")
    bob.client.send_message(GROUP, "@alice, at eight?")
    bob.client.send_message(GROUP, "or at nine")
    chat = desk.window("alice")
    chat.has("or at nine")
    chat.enter("/mentions")
    chat.has("1 found", "@alice, at eight?")
    chat.press("Escape")
    chat.enter("/pin")
    until(lambda: bob.client.call("list_pins", group=GROUP), "the pin")
    chat.enter("/pins")
    chat.has("or at nine", "Enter")
    chat.press("Escape")
    chat.enter("/transfer bob")
    chat.has("Make bob the owner of friends?")
    chat.press("y")
    until(lambda: bob.member(bob).role == "owner", "the new owner")


def test_the_status_bar_follows_the_chat(desk):
    alice, bob = desk.people("alice", "bob")
    meet(alice, bob)
    alice.client.create_group("work")
    chat = desk.window("alice", "chat", "work")
    chat.has("Message work")
    bob.client.send_message(GROUP, "@alice, at eight?")
    chat.has("unread elsewhere")
    assert desk.run("alice", "status", "--bar", "tmux") == "✉ 1 @1\n"
    assert json.loads(desk.run("alice", "status", "--bar", "waybar"))["class"] == "mention"
    chat.press("M-a")
    chat.has("Message friends", "@alice, at eight?")
    until(lambda: alice.group().unread == 0, "that it is read")
    assert desk.run("alice", "status", "--bar", "tmux") == "\n"
