"""QR codes of invitations: written as PNG files, and read from pictures."""

import io
from pathlib import Path

import pytest

from tests.support.marks import others_slow
from zerochat.agent.invitations import qr_pictures
from zerochat.agent.invitations.qr_pictures import NoCodeThere, NoPicture, NoReader, code_png, picture_path, read_code

CODE = "ZC:" + "6BF0ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" * 4
LINK = "https://zerochat.org/?_oob=" + "eyJ0eXBlIjoi" * 40


@pytest.fixture
def image():
    pytest.importorskip("zxingcpp", reason="zxing-cpp is not installed")
    return pytest.importorskip("PIL.Image", reason="Pillow is not installed")


@pytest.mark.parametrize("text", others_slow([CODE, LINK]))
@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "turned", "small", "in colour", "transparent"])
def test_a_drawn_code_is_read_back(tmp_path: Path, image, text: str, kind: str) -> None:
    path = tmp_path / "code.png"
    path.write_bytes(code_png(text))
    picture = image.open(io.BytesIO(code_png(text)))
    if kind in ("jpeg", "webp"):
        path = tmp_path / f"code.{kind}"
        picture.convert("L").save(path, quality=60)
    elif kind == "turned":
        picture.convert("L").rotate(17, expand=True, fillcolor=255).save(path)
    elif kind == "small":
        picture.convert("L").resize((picture.width // 2, picture.height // 2)).save(path)
    elif kind == "in colour":
        around = image.new("RGB", (picture.width + 300, picture.height + 200), (240, 240, 200))
        around.paste(picture.convert("RGB"), (120, 90))
        around.save(path)
    elif kind == "transparent":
        picture.convert("RGBA").save(path)
    assert read_code(path) == text


def test_of_several_codes_the_invitations_count(tmp_path: Path, image) -> None:
    path = tmp_path / "several.png"
    codes = [image.open(io.BytesIO(code_png(text))) for text in ("https://example.org/menu", CODE)]
    sheet = image.new("L", (sum(one.width for one in codes) + 100, max(one.height for one in codes)), 255)
    sheet.paste(codes[0].convert("L"), (0, 0))
    sheet.paste(codes[1].convert("L"), (codes[0].width + 100, 0))
    sheet.save(path)
    assert read_code(path) == CODE


def test_an_invalid_picture_is_refused_with_a_reason(tmp_path: Path, image, monkeypatch) -> None:
    empty = tmp_path / "empty.png"
    image.new("L", (300, 300), 255).save(empty)
    with pytest.raises(NoCodeThere, match="No QR code found"):
        read_code(empty)
    for content in (
        b"",
        b"no picture",
        b"\x89PNG\r\n\x1a\n" + b"\0" * 50,
        code_png(CODE)[:200],
        b"GIF89a" + b"\xff" * 9,
    ):
        broken = tmp_path / "broken.png"
        broken.write_bytes(content)
        with pytest.raises((NoPicture, NoCodeThere)):
            read_code(broken)
    with pytest.raises(NoPicture, match="No such file"):
        read_code(tmp_path / "nothing.png")
    huge = tmp_path / "huge.png"
    image.new("1", (9_000, 9_000), 1).save(huge)
    with pytest.raises(NoPicture, match="too large"):
        read_code(huge)
    monkeypatch.setattr(qr_pictures, "PICTURE_BYTES_MAX", 10)
    with pytest.raises(NoPicture, match="MiB"):
        read_code(empty)


def test_missing_packages_are_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zxingcpp", None)
    with pytest.raises(NoReader, match="pip install pillow zxing-cpp"):
        read_code(tmp_path / "code.png")


def test_a_path_is_recognised_in_any_notation(tmp_path: Path) -> None:
    path = tmp_path / "a code é.PNG"
    path.write_bytes(b"x")
    quoted = str(path).replace(" ", "%20").replace("é", "%C3%A9")
    for text in (str(path), f"  {path}\n", f"'{path}'", f'"{path}"', f"file://{quoted}", str(path).replace(" ", "\\ ")):
        assert picture_path(text) == path, text
    assert picture_path("~/gone/x.png") == Path("~/gone/x.png").expanduser()  # the reader says why it cannot be read
    for text in (
        "",
        CODE,
        LINK,
        str(tmp_path),
        f"{path}x",
        "/etc/passwd",
        "x" * 9_000 + ".png",
        "a\nb.png",
        "https://example.org/x.png",
    ):
        assert picture_path(text) is None, text


def test_a_text_that_fits_no_code() -> None:
    with pytest.raises(ValueError, match="too long"):
        code_png("x" * 5_000)
