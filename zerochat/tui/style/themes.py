"""The themes dark, light, contrast and ansi (the terminal's sixteen colours).

Text has a contrast of at least 4.5 to 1 (WCAG 2.2, 1.4.3), in the contrast theme 7 to 1 (1.4.6);
`tests/tui/test_themes.py` measures it. No information is conveyed by colour alone, so NO_COLOR loses nothing.
"""

from textual.theme import Theme

NO_COLOUR = "ansi"
"""Theme under NO_COLOR: only the terminal's two default colours remain."""


def _theme(name: str, *, dark: bool, muted: str, disabled: str, cursor: str, lit: str, **colours: str) -> Theme:
    """A theme whose text colours equal its mark colours, which Textual would tint. `lit`: background of the selected
    list entry, readable under all text colours."""
    texts = {f"text-{each}": colours[each] for each in ("primary", "accent", "warning", "error", "success")}
    grounds = {
        f"{each}-muted": colours["panel"] for each in ("primary", "secondary", "accent", "warning", "error", "success")
    }
    variables = {
        "text": colours["foreground"],
        "boost": colours["boost"],
        "text-muted": muted,
        "text-disabled": disabled,
        "text-secondary": colours["primary"],
        "block-cursor-foreground": colours["foreground"],
        "button-color-foreground": cursor,
        "block-cursor-background": lit,
        "block-cursor-text-style": "bold",
        "block-cursor-blurred-background": colours["panel"],
        "input-cursor-background": colours["foreground"],
        "input-cursor-foreground": colours["background"],
        "input-selection-background": f"{colours['primary']} 40%",
        "scrollbar": disabled,
        "scrollbar-background": colours["surface"],
        "border": colours["primary"],
        "border-blurred": colours["panel"],
        **texts,
        **grounds,
    }
    return Theme(
        name=name,
        dark=dark,
        primary=colours["primary"],
        secondary=colours["primary"],
        accent=colours["accent"],
        warning=colours["warning"],
        error=colours["error"],
        success=colours["success"],
        foreground=colours["foreground"],
        background=colours["background"],
        surface=colours["surface"],
        panel=colours["panel"],
        boost=colours["boost"],
        variables=variables,
    )


DARK = _theme(
    "dark",
    dark=True,
    foreground="#e4e7ec",
    background="#14171c",
    surface="#1b1f26",
    panel="#252a33",
    boost="#20252d",
    primary="#6cb0f8",
    accent="#7fd6cb",
    warning="#f2c469",
    error="#ff9c9c",
    success="#86d792",
    muted="#a9b2bf",
    disabled="#8d96a4",
    cursor="#10131a",
    lit="#1b3f68",
)
LIGHT = _theme(
    "light",
    dark=False,
    foreground="#1b1f27",
    background="#fbfaf7",
    surface="#f3f1eb",
    panel="#e7e4db",
    boost="#eeece5",
    primary="#17539f",
    accent="#0a5a54",
    warning="#6b4700",
    error="#a11a28",
    success="#1d5a29",
    muted="#50565f",
    disabled="#5f656f",
    cursor="#ffffff",
    lit="#b9d2f0",
)
CONTRAST = _theme(
    "contrast",
    dark=True,
    foreground="#ffffff",
    background="#000000",
    surface="#000000",
    panel="#1a1a1a",
    boost="#1a1a1a",
    primary="#7cc4ff",
    accent="#ffe14d",
    warning="#ffc24d",
    error="#ffb0b0",
    success="#8cff98",
    muted="#e0e0e0",
    disabled="#c4c4c4",
    cursor="#000000",
    lit="#002c56",
)
ANSI = Theme(
    name="ansi",
    ansi=True,
    primary="ansi_cyan",
    secondary="ansi_cyan",
    accent="ansi_cyan",
    warning="ansi_magenta",
    error="ansi_red",
    success="ansi_green",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    variables={
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        "text-muted": "ansi_default",
        "text-disabled": "ansi_default",
        "block-cursor-foreground": "ansi_black",
        "block-cursor-background": "ansi_cyan",
        "block-cursor-text-style": "bold underline",
        "block-cursor-blurred-text-style": "bold",
        "screen-selection-background": "ansi_cyan",
        "screen-selection-foreground": "ansi_black",
        **{f"{each}-muted": "ansi_default" for each in ("primary", "secondary", "accent", "warning", "error")},
        "success-muted": "ansi_default",
    },
)
"""The terminal's default colours, and those of the sixteen that are readable on both dark and light."""
THEMES = (DARK, LIGHT, CONTRAST, ANSI)
