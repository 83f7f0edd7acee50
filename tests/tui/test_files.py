"""Files in the chat: lines below messages, sending, downloading, saving."""

import pytest
from msgspec.structs import replace
from textual.color import Color

from tests.support.fake_agent import Refusal
from tests.support.marks import others_slow
from tests.support.tui_pilot import HOSTILE, asked, completed, run, scene, weekend
from zerochat.rpc import Attachment, Author, FileInfo, FileList, FileNotification, Picture, Saved, Sent
from zerochat.tui.composer.paths import path_of, paths_for
from zerochat.tui.dialogs.menu import MenuDialog
from zerochat.tui.dialogs.picture import half_blocks

PHOTO = Attachment(id="p" * 43, name="photo.jpg", size=2_300_000, type="image/jpeg", of=2)
FILM = Attachment(id="f" * 43, name="film.mkv", size=700_000_000, of=2)


class Shelf:
    """What the agent has of files, and what it says when it is asked about them."""

    def __init__(self, agent, *files, text="look", who=1):
        self.agent, self.group = agent, next(iter(agent.groups.values()))
        self.event = agent.post(self.group, who, text, minute=9)
        self.files = {one.id: one for one in files}
        self.put()
        for method in ("send_files", "fetch_file", "save_file", "list_files"):
            setattr(agent, f"_{method}", getattr(self, f"_{method}"))

    def put(self):
        at = next(at for at, one in enumerate(self.group.events) if one.id == self.event.id)
        self.event = replace(self.group.events[at], attachments=list(self.files.values()))
        self.group.events[at] = self.event

    def move(self, file, **changes):
        """News of a file."""
        self.files[file.id] = replace(self.files[file.id], **changes)
        self.put()
        self.agent.tell("file_changed", FileNotification(self.group.info.id, self.event.id, self.files[file.id]))

    def _info(self, key):
        file = self.files[key]
        return FileInfo(
            group=self.group.info.id, event=self.event.id, author=self.event.author, posted_at="", file=file
        )

    def _send_files(self, params):
        return Sent(params.group, "e9", 9, 9, 2)

    def _fetch_file(self, params):
        self.files[params.file] = replace(self.files[params.file], state="getting", from_=Author("did", "bob"))
        return self._info(params.file)

    def _save_file(self, params):
        if params.file not in self.files:
            raise Refusal("There is no file 'nothing' in this group.", "NoSuchFile")
        return Saved(f"/home/me/Downloads/{self.files[params.file].name}", self.files[params.file].size, "00")

    def _list_files(self, params):
        return FileList([self._info(key) for key in self.files])


def play(tmp_path, story, *files, size=(130, 24), **shelf):
    kept = []

    def setting(agent):
        weekend(agent)
        kept.append(Shelf(agent, *files, **shelf))

    async def whole():
        async with scene(tmp_path, size=size, setting=setting) as it:
            await it.shows("seven at")
            await story(it, kept[0])

    run(whole())


def test_the_file_line_follows_the_transfer(tmp_path):
    async def story(it, shelf):
        await it.shows("look", "📎 photo.jpg  2.3 MB · not downloaded")
        shelf.move(PHOTO, state="getting", have=920_000, from_=Author("did", "bob"))
        await it.shows("📎 photo.jpg  2.3 MB · 40 %")
        shelf.move(PHOTO, fault="The disk is full. Make room.")
        await it.shows("stopped at 40 %: The")
        shelf.move(PHOTO, state="here", have=2_300_000, fault="")
        await it.shows("📎 photo.jpg  2.3 MB · downloaded")

    play(tmp_path, story, PHOTO)


def test_own_files_show_delivery_and_need_no_text(tmp_path):
    async def story(it, shelf):
        await it.shows("│ 📎 photo.jpg  2.3 MB · received by 0 of 2", "📎 film.mkv  700 MB · received by 1 of 2")
        shelf.move(PHOTO, holders=2)
        await it.shows("📎 photo.jpg  2.3 MB · received by 2 of 2")

    here = {"state": "here"}
    play(tmp_path, story, replace(PHOTO, **here), replace(FILM, **here, holders=1), text="", who=0)


@pytest.mark.parametrize("width", others_slow([40, 24, 60, 100]))
def test_hostile_file_names_are_sanitised(tmp_path, width):
    async def story(it, shelf):
        await it.shows("📎")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)
        await it.press("f6", "m")
        await it.until(lambda: isinstance(it.app.screen, MenuDialog), "the menu")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)
        await it.press("escape", "escape")
        await it.say("/files")
        await it.until(lambda: isinstance(it.app.screen, MenuDialog), "the list")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)

    play(tmp_path, story, replace(PHOTO, name=HOSTILE, type="x/y", fault=HOSTILE), size=(width, 24))


def test_s_downloads_then_saves(tmp_path):
    async def story(it, shelf):
        await it.shows("not downloaded")
        await it.press("f6", "s")
        await it.until(lambda: "Downloading photo.jpg" in it.told(), "fetching")
        assert asked(it.agent, "fetch_file") == [{"group": shelf.group.info.id, "file": PHOTO.id}]
        shelf.move(PHOTO, have=1_000_000)
        await it.shows("43 %")
        await it.press("s")
        await it.until(lambda: "You can save it once it is downloaded" in it.told(), "the advice")
        shelf.move(PHOTO, state="here", have=2_300_000)
        await it.shows("· downloaded")
        await it.press("s")
        await it.until(lambda: "Saved as /home/me/Downloads/photo.jpg" in it.told(), "saving")
        assert asked(it.agent, "save_file") == [{"group": shelf.group.info.id, "file": PHOTO.id, "to": ""}]

    play(tmp_path, story, PHOTO)


@pytest.mark.slow
def test_one_of_several_files_is_chosen_or_named(tmp_path):
    async def story(it, shelf):
        await it.shows("film.mkv")
        await it.press("f6", "s")
        await it.shows("Choose a file", "Enter chooses")
        await it.press("down", "enter")
        await it.until(lambda: asked(it.agent, "fetch_file"), "fetching")
        assert asked(it.agent, "fetch_file")[0]["file"] == FILM.id
        await it.press("escape")
        await it.say("/save nothing")
        await it.until(lambda: "There is no file 'nothing'" in it.told(), "the refusal")

    play(tmp_path, story, replace(PHOTO, state="here"), FILM)


def test_the_file_list_downloads_and_saves(tmp_path):
    async def story(it, shelf):
        await it.shows("look")
        await it.say("/files")
        await it.shows("Files in weekend", "photo.jpg  2.3 MB · downloaded")
        await it.press("enter")
        await it.until(lambda: "Saved as" in it.told(), "saving")

    play(tmp_path, story, replace(PHOTO, state="here"))


def test_sending_a_file(tmp_path):
    path = tmp_path / "our map.pdf"
    path.write_bytes(b"x")

    async def story(it, shelf):
        await it.say(f"/send {path}")
        await it.until(lambda: asked(it.agent, "send_files"), "sending")
        (params,) = asked(it.agent, "send_files")
        assert (params["paths"], params["text"], params["reply_to"]) == ([str(path)], "", None)
        await it.press("f6", "r")
        await it.say(f"/send '{path}'")
        await it.until(lambda: len(asked(it.agent, "send_files")) == 2, "answering with a file")
        assert asked(it.agent, "send_files")[1]["reply_to"] == shelf.event.id
        await it.say("/send")
        await it.until(lambda: "Usage: /send PATH" in it.told(), "the advice")
        it.agent.refuse["send_files"] = Refusal("/x cannot be sent: no such file or directory.", "CannotSend")
        await it.say("/send /x")
        await it.until(lambda: "cannot be sent" in it.told(), "the refusal")
        it.composer.set_text(f"/send {tmp_path}/our")
        await it.press("tab")
        assert it.composer.text == f"/send {path}"

    play(tmp_path, story, PHOTO)


@pytest.mark.slow
def test_a_message_without_files_is_reported(tmp_path):
    async def story(it, shelf):
        await it.press("f6", "k", "s")
        await it.until(lambda: "This message has no file" in it.told(), "the sentence")

    play(tmp_path, story, PHOTO)


# --- paths ------------------------------------------------------------------------------------------------------------


def test_typed_pasted_and_dropped_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b.txt").touch()
    wanted = str(tmp_path / "a b.txt")
    for typed in ("a b.txt", " a b.txt ", "'a b.txt'", '"a b.txt"', "a\\ b.txt", "~/a b.txt", wanted):
        assert path_of(typed) == wanted, typed
    assert path_of(f"file://{wanted.replace(' ', '%20')}") == wanted
    assert path_of("nothing") == str(tmp_path / "nothing")


def test_paths_complete(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("photo.jpg", "photo.png", ".hidden", "evil\x1b[2J"):
        (tmp_path / name).touch()
    (tmp_path / "pictures").mkdir()
    assert paths_for("ph") == ["photo.jpg", "photo.png"]
    assert paths_for("") == ["photo.jpg", "photo.png", "pictures/"]
    assert paths_for(".h") == [".hidden"]
    assert paths_for("~/pic") == ["~/pictures/"]
    assert paths_for(f"{tmp_path}/pi") == [f"{tmp_path}/pictures/"]
    assert paths_for("/nowhere/at") == paths_for("evil") == paths_for("\x00") == []
    assert completed("/send ph") == "/send photo."
    assert completed("/send pi") == "/send pictures/"
    assert completed("/send nothing") is None


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_p_shows_a_picture_in_half_blocks(tmp_path):
    async def story(it, shelf):
        shown = Picture(4, 4, bytes([255, 0, 0] * 8 + [0, 0, 255] * 8))
        it.agent._render_picture = lambda params: shown
        await it.press("f6", "p")
        await it.shows("▀▀▀▀")
        (params,) = asked(it.agent, "render_picture")
        assert params["file"] == PHOTO.id and 2 <= params["width"] <= 130 and 2 <= params["height"] <= 48
        lines = half_blocks(shown).split("\n")
        assert [line.plain for line in lines] == ["▀▀▀▀", "▀▀▀▀"]
        assert lines[0].spans[0].style.foreground == Color(255, 0, 0)
        await it.press("escape")
        await it.gone("▀▀▀▀")
        it.agent.refuse["render_picture"] = Refusal(
            "'photo.jpg' cannot be shown here: it takes too long.", "NoPictureHere"
        )
        await it.press("p")
        await it.until(lambda: "cannot be shown here" in it.told(), "the refusal")

    play(tmp_path, story, replace(PHOTO, state="here"))


@pytest.mark.slow
def test_missing_pictures_are_not_requested(tmp_path):
    async def story(it, shelf):
        await it.press("f6", "p")
        await it.until(lambda: "This message has no picture" in it.told(), "the sentence")
        shelf.move(FILM, type="video/x")
        assert not asked(it.agent, "render_picture")

    play(tmp_path, story, FILM)
