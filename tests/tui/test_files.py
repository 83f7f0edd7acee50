"""Files in the chat: what stands below a message, sending one, and fetching and saving those of others."""

import pytest
from msgspec.structs import replace
from textual.color import Color

from tests.support.fake_agent import Refusal
from tests.support.tui_pilot import HOSTILE, asked, run, scene, weekend
from zerochat.rpc import Attachment, Author, FileInfo, FileList, FileNews, Picture, Saved, Sent
from zerochat.tui.composer import commands
from zerochat.tui.composer.paths import path_of, paths_for
from zerochat.tui.dialogs.menu import Pick
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
        for method in ("attach", "get", "save", "files"):
            setattr(agent, f"_{method}", getattr(self, f"_{method}"))

    def put(self):
        at = next(at for at, one in enumerate(self.group.events) if one.id == self.event.id)
        self.event = replace(self.group.events[at], attachments=list(self.files.values()))
        self.group.events[at] = self.event

    def move(self, file, **changes):
        """News of a file."""
        self.files[file.id] = replace(self.files[file.id], **changes)
        self.put()
        self.agent.tell("file", FileNews(self.group.info.id, self.event.id, self.files[file.id]))

    def _info(self, key):
        file = self.files[key]
        return FileInfo(
            group=self.group.info.id, event=self.event.id, author=self.event.author, posted_at="", file=file
        )

    def _attach(self, params):
        return Sent(params.group, "e9", 9, 9, 2)

    def _get(self, params):
        self.files[params.file] = replace(self.files[params.file], state="getting", from_=Author("did", "bob"))
        return self._info(params.file)

    def _save(self, params):
        if params.file not in self.files:
            raise Refusal("There is no file 'nothing' in this group.", "NoSuchFile")
        return Saved(f"/home/me/Downloads/{self.files[params.file].name}", self.files[params.file].size, "00")

    def _files(self, params):
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


def test_a_file_stands_below_its_message_and_its_line_follows_the_news(tmp_path):
    async def story(it, shelf):
        await it.shows("look", "📎 photo.jpg  2.3 MB · not here")
        shelf.move(PHOTO, state="getting", have=920_000, from_=Author("did", "bob"))
        await it.shows("📎 photo.jpg  2.3 MB · 40 %")
        shelf.move(PHOTO, fault="The disk is full. Make room.")
        await it.shows("stopped at 40 %: The")
        shelf.move(PHOTO, state="here", have=2_300_000, fault="")
        await it.shows("📎 photo.jpg  2.3 MB · here")

    play(tmp_path, story, PHOTO)


def test_mine_says_who_has_it_and_a_message_may_be_a_file_alone(tmp_path):
    async def story(it, shelf):
        await it.shows("│ 📎 photo.jpg  2.3 MB · 0 of 2 have it", "📎 film.mkv  700 MB · 1 of 2 have it")
        shelf.move(PHOTO, holders=2)
        await it.shows("📎 photo.jpg  2.3 MB · 2 of 2 have it")

    here = {"state": "here"}
    play(tmp_path, story, replace(PHOTO, **here), replace(FILM, **here, holders=1), text="", who=0)


@pytest.mark.parametrize("width", [100, 60, 40, 24])
def test_whatever_a_file_is_called_nothing_of_it_reaches_the_terminal(tmp_path, width):
    async def story(it, shelf):
        await it.shows("📎")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)
        await it.press("f6", "m")
        await it.until(lambda: isinstance(it.app.screen, Pick), "the menu")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)
        await it.press("escape", "escape")
        await it.say("/files")
        await it.until(lambda: isinstance(it.app.screen, Pick), "the list")
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\u200b", "\x00"} & set(it.text)

    play(tmp_path, story, replace(PHOTO, name=HOSTILE, type="x/y", fault=HOSTILE), size=(width, 24))


def test_s_fetches_what_is_not_here_and_saves_what_is(tmp_path):
    async def story(it, shelf):
        await it.shows("not here")
        await it.press("f6", "s")
        await it.until(lambda: "Fetching photo.jpg" in it.told(), "fetching")
        assert asked(it.agent, "get") == [{"group": shelf.group.info.id, "file": PHOTO.id}]
        shelf.move(PHOTO, have=1_000_000)
        await it.shows("43 %")
        await it.press("s")
        await it.until(lambda: "It can be saved when it is here" in it.told(), "the advice")
        shelf.move(PHOTO, state="here", have=2_300_000)
        await it.shows("· here")
        await it.press("s")
        await it.until(lambda: "Saved as /home/me/Downloads/photo.jpg" in it.told(), "saving")
        assert asked(it.agent, "save") == [{"group": shelf.group.info.id, "file": PHOTO.id, "to": ""}]

    play(tmp_path, story, PHOTO)


def test_of_several_files_one_is_picked_and_by_name_without_asking(tmp_path):
    async def story(it, shelf):
        await it.shows("film.mkv")
        await it.press("f6", "s")
        await it.shows("Which file", "Enter chooses")
        await it.press("down", "enter")
        await it.until(lambda: asked(it.agent, "get"), "fetching")
        assert asked(it.agent, "get")[0]["file"] == FILM.id
        await it.press("escape")
        await it.say("/save nothing")
        await it.until(lambda: "There is no file 'nothing'" in it.told(), "the refusal")

    play(tmp_path, story, replace(PHOTO, state="here"), FILM)


def test_the_list_of_files_fetches_and_saves_too(tmp_path):
    async def story(it, shelf):
        await it.shows("look")
        await it.say("/files")
        await it.shows("Files in weekend", "photo.jpg  2.3 MB · here")
        await it.press("enter")
        await it.until(lambda: "Saved as" in it.told(), "saving")

    play(tmp_path, story, replace(PHOTO, state="here"))


def test_sending_a_file(tmp_path):
    path = tmp_path / "our map.pdf"
    path.write_bytes(b"x")

    async def story(it, shelf):
        await it.say(f"/send {path}")
        await it.until(lambda: asked(it.agent, "attach"), "sending")
        (params,) = asked(it.agent, "attach")
        assert (params["paths"], params["text"], params["reply_to"]) == ([str(path)], "", None)
        await it.press("f6", "r")
        await it.say(f"/send '{path}'")
        await it.until(lambda: len(asked(it.agent, "attach")) == 2, "answering with a file")
        assert asked(it.agent, "attach")[1]["reply_to"] == shelf.event.id
        await it.say("/send")
        await it.until(lambda: "/send takes the path of a file" in it.told(), "the advice")
        it.agent.refuse["attach"] = Refusal("/x cannot be sent: no such file or directory.", "CannotRead")
        await it.say("/send /x")
        await it.until(lambda: "cannot be sent" in it.told(), "the refusal")
        it.composer.put(f"/send {tmp_path}/our")
        await it.press("tab")
        assert it.composer.text == f"/send {path}"

    play(tmp_path, story, PHOTO)


def test_where_no_file_came_with_a_message_it_says_so(tmp_path):
    async def story(it, shelf):
        await it.press("f6", "k", "s")
        await it.until(lambda: "No file came with this message" in it.told(), "the sentence")

    play(tmp_path, story, PHOTO)


# --- paths ------------------------------------------------------------------------------------------------------------


def test_paths_as_they_are_typed_pasted_and_dropped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a b.txt").touch()
    wanted = str(tmp_path / "a b.txt")
    for typed in ("a b.txt", " a b.txt ", "'a b.txt'", '"a b.txt"', "a\\ b.txt", "~/a b.txt", wanted):
        assert path_of(typed) == wanted, typed
    assert path_of(f"file://{wanted.replace(' ', '%20')}") == wanted
    assert path_of("nothing") == str(tmp_path / "nothing")


def test_a_path_that_is_begun_goes_on(tmp_path, monkeypatch):
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
    assert commands.complete("/send ph") == "/send photo."
    assert commands.complete("/send pi") == "/send pictures/"
    assert commands.complete("/send nothing") is None


# --- pictures ---------------------------------------------------------------------------------------------------------


def test_p_shows_a_picture_in_half_blocks(tmp_path):
    async def story(it, shelf):
        shown = Picture(4, 4, bytes([255, 0, 0] * 8 + [0, 0, 255] * 8))
        it.agent._picture = lambda params: shown
        await it.press("f6", "p")
        await it.shows("▀▀▀▀")
        (params,) = asked(it.agent, "picture")
        assert params["file"] == PHOTO.id and 2 <= params["width"] <= 130 and 2 <= params["height"] <= 48
        lines = half_blocks(shown).split("\n")
        assert [line.plain for line in lines] == ["▀▀▀▀", "▀▀▀▀"]
        assert lines[0].spans[0].style.foreground == Color(255, 0, 0)
        await it.press("escape")
        await it.gone("▀▀▀▀")
        it.agent.refuse["picture"] = Refusal("'photo.jpg' cannot be shown here: it takes too long.", "NoPictureHere")
        await it.press("p")
        await it.until(lambda: "cannot be shown here" in it.told(), "the refusal")

    play(tmp_path, story, replace(PHOTO, state="here"))


def test_what_is_no_picture_or_not_here_is_not_asked_for(tmp_path):
    async def story(it, shelf):
        await it.press("f6", "p")
        await it.until(lambda: "No picture came with this message" in it.told(), "the sentence")
        shelf.move(FILM, type="video/x")
        assert not asked(it.agent, "picture")

    play(tmp_path, story, FILM)
