"""The texts of a long group chat, the same in every run: eleven words on average, some long, some with emoji or wide
scripts."""

import random

LETTERS = "abcdefghijklmnopqrstuvwxyz"
_dice = random.Random(20)
WORDS = ["".join(_dice.choices(LETTERS, k=_dice.randint(2, 10))) for _ in range(3_000)]
WEIGHTS = [1 / (rank + 1) for rank in range(len(WORDS))]
WIDE = ["会議は八時から", "橋のそばで", "잘 지냈어요", "你好，大家", "วันนี้"]
SIGNS = ["🎉", "👍", "😀", "✓"]
PEOPLE = ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi"]


def text_of(number: int) -> str:
    """The message with this number; it ends with a token by which it is known on a screen."""
    dice = random.Random(number)
    words = dice.choices(WORDS, WEIGHTS, k=min(1 + int(dice.expovariate(1 / 10)), 60))
    kind = dice.random()
    if kind < 0.05:
        words.append(dice.choice(WIDE))
    elif kind < 0.15:
        words.append(dice.choice(SIGNS))
    elif kind < 0.18:
        words.insert(len(words) // 2, "\n\n")
    return " ".join([*words, token(number)])


def token(number: int) -> str:
    return f"qz{number}zq"


def author_of(number: int) -> int:
    """Now and then one author sends several messages in a row."""
    return number // 2 % len(PEOPLE)
