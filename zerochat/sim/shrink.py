"""Cutting a script down to what it takes to break a promise.

Delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002): leave out halves,
then quarters and so on, as long as something still breaks; then make shorter what lasts.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from zerochat.sim.episode import Act

Script = tuple[Act, ...]


def shrunk(script: Sequence[Act], broken: Callable[[Script], bool]) -> Script:
    """A part of the script that is still `broken`, of which nothing more can be left out; with each of its acts as
    short as it may be. `script` itself has to be broken. Plays some dozen episodes."""
    return _shorter(_fewer(tuple(script), broken), broken)


def _fewer(script: Script, broken: Callable[[Script], bool]) -> Script:
    pieces = 2
    while len(script) > 1 and pieces <= len(script):
        size = -(-len(script) // pieces)
        for start in range(0, len(script), size):
            rest = script[:start] + script[start + size :]
            if broken(rest):
                script, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(script))
    return script


def _shorter(script: Script, broken: Callable[[Script], bool]) -> Script:
    for at, act in enumerate(script):
        for for_ms in (500, 2_000, 6_000):
            if for_ms < act.for_ms:
                less = (*script[:at], replace(act, for_ms=for_ms), *script[at + 1 :])
                if broken(less):
                    script = less
                    break
    return script
