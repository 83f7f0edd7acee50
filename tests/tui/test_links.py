"""Opening links, and the full message dialog."""

import pytest
from textual.widgets import Markdown

from tests.support.tui_pilot import run, scene
from zerochat.tui.actions import links

pytestmark = pytest.mark.usefixtures("utc")


@pytest.mark.slow
def test_links_are_confirmed_and_only_https_opens(tmp_path, monkeypatch):
    opened = []

    async def opener(way):
        opened.append(way)
        return True

    monkeypatch.setattr(links, "opener", lambda environ, platform: ["/usr/bin/xdg-open"])
    monkeypatch.setattr(links, "run_opener", opener)

    def setting(agent):
        group = agent.add_group("weekend", ["bob"])
        agent.post(group, 1, "see https://one.example/a_b_c.", minute=1)
        agent.post(group, 1, "https://two.example and https://three.example/x?y=1&z=2; http://no.example", minute=2)
        agent.post(group, 1, "nothing, not even javascript:alert(1)", minute=3)
        agent.post(group, 1, "https://bank.example@evil.example/", minute=4)

    async def play():
        async with scene(tmp_path, size=(80, 30), setting=setting) as it:
            await it.shows("nothing")
            await it.press("f6", "k", "o")
            await it.until(lambda: "This message has no https link." in it.told())
            await it.press("home", "o")
            await it.shows("Open this link", "https://one.example/a_b_c")
            await it.press("n")
            assert not opened
            await it.press("o")
            await it.shows("Open this link")
            await it.press("y")
            await it.until(lambda: opened == [["/usr/bin/xdg-open", "https://one.example/a_b_c"]])
            await it.press("j", "o")
            await it.shows("Open which link?", "https://two.example", "https://three.example/x?y=1&z=2")
            assert "http://no" not in it.text.split("Open which link?")[1].split("Enter chooses")[0]
            await it.press("down", "enter")
            await it.shows("Open this link")
            await it.press("y")
            await it.until(lambda: opened[-1][-1] == "https://three.example/x?y=1&z=2")
            await it.press("end", "o")
            await it.shows("leads to evil.example")

    run(play())


@pytest.mark.parametrize(
    ("link", "opens"),
    [
        ("https://a.example/", True),
        ("http://a.example/", False),
        ("javascript:alert(1)", False),
        ("https://", False),
        ("https://a.example/\u202egnp", False),
        ("https://a.example/\x1b]52;c;aGk=\x07", False),
        ("https://a.example/ b", False),
        ("https://[::1", False),
        ("https://a.example/" + "x" * 4_000, False),
        ("app.quit", False),
        ("https://evil.example\\@bank.example/", False),
    ],
)
def test_accepted_links(link, opens):
    assert (links.link_fault(link) == "") == opens


def test_a_non_ascii_host_is_shown_as_punycode():
    assert "xn--" in links.link_warning("https://аpple.example/")  # A Cyrillic letter.
    assert links.link_warning("https://apple.example/") == ""


@pytest.mark.slow
def test_the_full_message_dialog(tmp_path):
    text = "# Title\n\n- one\n- two\n\n**bold** &#8238; [a](app.quit) <b>x</b> ![p](https://e.example/p.png)\n\n```py\nx=1\n```"

    def setting(agent):
        group = agent.add_group("weekend", ["bob"])
        agent.post(group, 1, text, minute=1)
        agent.post(group, 1, "many lines\n" * 30_000, minute=2)
        agent.post(group, 1, ("> " * 500 + "x\n") * 8, minute=3)

    async def play():
        async with scene(tmp_path, size=(80, 40), setting=setting) as it:
            await it.shows("▎ > > >")
            await it.press("f6", "home", "f")
            await it.shows("bob, Thursday 20 November 2025", "Title", "• one", "bold &#8238;", "<b>x</b>", "x=1")
            assert "\u202e" not in it.text
            link = it.app.screen.query_one(Markdown)
            link.post_message(Markdown.LinkClicked(link, "app.quit"))
            await it.shows("Only https links can be opened.")
            assert it.app.is_running
            await it.press("escape")
            for key in it.open.timeline.keys[-2:]:  # What would stop a widget for each paragraph is shown as it is.
                it.app.chat.pane.select(key)
                await it.press("f")
                await it.shows("bob, Thursday")
                await it.press("pagedown", "escape")
                await it.until(lambda: it.app.screen is it.app.chat)

    run(play())
