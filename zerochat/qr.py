"""QR codes for terminals and images: matrix, half-block rows and ANSI output."""

from typing import Final

QUIET_ZONE: Final = 2
"""Light modules around a code: the standard requires four, scanners accept two, and 80x24 has no room for more."""
_HALF_BLOCKS: Final = " ▀▄█"
_ALPHANUMERIC: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:")


def qr_modules(text: str) -> list[list[bool]]:
    """The QR code (ISO/IEC 18004, level L) of a text with its quiet zone: rows of modules, True for a dark one.

    Raises ValueError if the text is too long for a QR code.
    """
    from qrcode.constants import ERROR_CORRECT_L
    from qrcode.exceptions import DataOverflowError
    from qrcode.main import QRCode
    from qrcode.util import MODE_8BIT_BYTE, MODE_ALPHA_NUM, QRData

    code = QRCode(error_correction=ERROR_CORRECT_L, border=QUIET_ZONE)
    mode = MODE_ALPHA_NUM if _ALPHANUMERIC.issuperset(text) else MODE_8BIT_BYTE
    code.add_data(QRData(text.encode(), mode=mode))
    try:
        matrix = code.get_matrix()
    except (DataOverflowError, ValueError) as error:
        raise ValueError("the text is too long for a QR code") from error
    return [[bool(module) for module in row] for row in matrix]


def qr_half_blocks(text: str) -> list[str]:
    """The QR code of a text as rows of half blocks, two modules per character cell.

    Foreground is dark: print the rows black on bright white, otherwise a dark theme inverts the code. Raises
    ValueError if the text is too long for a QR code.
    """
    rows = qr_modules(text)
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    return [
        "".join(_HALF_BLOCKS[top + 2 * bottom] for top, bottom in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def qr_ansi(text: str) -> str:
    """The rows of `qr_half_blocks` in black on bright white, for dark and light terminals."""
    return "\n".join(f"\x1b[30;107m{row}\x1b[0m" for row in qr_half_blocks(text))
