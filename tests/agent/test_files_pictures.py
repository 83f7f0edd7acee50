"""Thumbnails of foreign pictures, decoded in a sandboxed process."""

import errno
import io
import resource
import subprocess
import sys

import pytest

from tests.support import agents
from tests.support.agents import meet, until
from tests.support.shared_files import is_here
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.files import thumbnail_decoder
from zerochat.agent.files.thumbnail import PICTURE_BYTES_MAX, NoPictureHere, small_picture

Image = pytest.importorskip("PIL.Image")
people = agents.people


def made(kind, size=(64, 32), colour=(250, 10, 20)):
    content = io.BytesIO()
    Image.new("RGB", size, colour).save(content, kind)
    return content.getvalue()


def small(content, width=40, height=40):
    return small_picture("it", len(content), [content[:7], content[7:]], width, height)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
def test_common_picture_formats_become_thumbnails(kind):
    width, height, pixels = small(made(kind))
    assert (width, height) == (40, 20) and len(pixels) == 40 * 20 * 3
    red, green, blue = pixels[:3]
    assert red > 230 and green < 40 and blue < 40


def test_pictures_of_phones_and_old_programs_are_decoded():
    picture = Image.linear_gradient("L").resize((64, 32)).convert("RGB")
    exif = Image.Exif()
    exif[0x0110], exif[0x0112] = "a phone", 6
    for kind, how, mode in (
        ("MPO", {"save_all": True, "append_images": [picture], "exif": exif}, "RGB"),
        ("JPEG", {"exif": exif, "dpi": (72, 72), "progressive": True}, "RGB"),
        ("JPEG", {}, "CMYK"),
        ("PNG", {"transparency": 3}, "P"),
        ("PNG", {}, "I;16"),
        ("PNG", {"exif": exif}, "LA"),
        ("GIF", {"save_all": True, "append_images": [picture.convert("P")], "transparency": 3}, "P"),
        ("WEBP", {"lossless": True, "exif": exif, "save_all": True, "append_images": [picture]}, "RGBA"),
    ):
        content = io.BytesIO()
        (picture.convert("I") if mode == "I;16" else picture).convert(mode).save(content, kind, **how)
        assert small(content.getvalue())[:2] == (40, 20), (kind, mode)


def test_a_small_picture_is_not_enlarged():
    assert small(made("PNG", (3, 2)))[:2] == (3, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"text",
        b"\x89PNG\r\n\x1a\n" + b"x" * 100,
        made("PNG")[:60],
        made("JPEG")[:100],
        made("TIFF"),
        made("BMP"),
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n",
    ],
    ids=range(8),
)
def test_invalid_and_unsupported_pictures_are_refused(content):
    with pytest.raises(NoPictureHere, match="cannot be shown here"):
        small(content)


@pytest.mark.slow
def test_a_decompression_bomb_is_refused():
    bomb = made("PNG", (20_000, 20_000))
    assert len(bomb) < 2 << 20
    with pytest.raises(NoPictureHere):
        small(bomb)
    with pytest.raises(NoPictureHere, match="MiB"):
        small_picture("it", PICTURE_BYTES_MAX + 1, [], 10, 10)


def test_the_decoder_cannot_write_and_has_little_memory(tmp_path):
    """The same process, with something else in the place of the decoder."""
    probe = (
        "import resource, runpy, socket, sys\n"
        "from PIL import Image\n"
        "def probe(*_, **__):\n"
        "    for what in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE):\n"
        "        print(*resource.getrlimit(what), file=sys.stderr)\n"
        "    for reach in (lambda: open('/dev/null'), socket.socket, socket.socketpair):\n"
        "        try:\n"
        "            reach()\n"
        "        except OSError as error:\n"
        "            print(error.errno, file=sys.stderr)\n"
        "    print(*resource.getrlimit(resource.RLIMIT_NPROC), file=sys.stderr)\n"
        "    raise SystemExit(1)\n"
        "Image.open = probe\n"
        f"sys.argv = ['decoder', '10', '10']\n"
        f"runpy.run_path({thumbnail_decoder.__file__!r}, run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], input=b"x", capture_output=True, cwd=tmp_path, timeout=60)
    limits = [tuple(map(int, line.split())) for line in done.stderr.decode().splitlines()]
    assert done.returncode == 1 and limits[1:3] == [(thumbnail_decoder.CPU_S,) * 2, (0, 0)]
    assert limits[3:] == [(errno.EMFILE,)] * 3 + [(0, 0)], "no file, no socket, no other process"
    assert limits[0] == (thumbnail_decoder.MEMORY_BYTES,) * 2 or sys.platform == "darwin"
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0, "ours are as they were"


def test_a_picture_from_one_agent_to_another_is_shown_small(people, tmp_path):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    (tmp_path / "red.png").write_bytes(made("PNG"))
    (tmp_path / "not.png").write_bytes(b"not one")
    alice.client.send_files("friends", [str(tmp_path / "red.png"), str(tmp_path / "not.png")])
    until(
        lambda: is_here(bob) and all(one.file.state == "here" for one in bob.client.list_files("friends")), "the files"
    )
    shown = bob.client.call("render_picture", group="friends", file="red.png", width=20, height=20)
    assert (shown.width, shown.height, len(shown.pixels)) == (20, 10, 600)
    with pytest.raises(AgentError, match=r"'not.png' cannot be shown here"):
        bob.client.call("render_picture", group="friends", file="not.png", width=20, height=20)
