"""Lines of C that repeat with numbers that advance evenly, as loops.

May import: nothing. Must not: know instructions.
Works on text: what stands between numbers must be equal, and each number must advance by one step. The calls and their order stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

#: numbers that are no part of a name
_NUMBER = re.compile(r"(?<![\w.])(0x[0-9a-f]+|\d+)(?:ull|u)?\b")
MOST_LINES = 48  # of one pass
MIN_SAVED = 3  # lines
#: numbers stay below, so that 32 bits hold what loops compute
LIMIT = 1 << 31


class _Line:
    def __init__(self, text: str) -> None:
        self.text = text
        self.numbers = tuple(int(m.group(1), 0) for m in _NUMBER.finditer(text))
        self.frame = _NUMBER.sub("#", text)
        self.balance = text.count("{") - text.count("}")
        self.low = min(0, *_running(text)) if "}" in text else 0
        self.small = all(n < LIMIT for n in self.numbers)


def _running(text: str) -> Iterator[int]:
    depth = 0
    for c in text:
        depth += (c == "{") - (c == "}")
        yield depth


def fold(lines: Sequence[str], variable: str = "k") -> list[str]:
    """Return the lines with repeats as loops over `variable`; the longest that begins at a line is taken."""
    own = [_Line(text) for text in lines]
    names: dict[str, int] = {}
    frames = [names.setdefault(line.frame, len(names)) for line in own]
    out: list[str] = []
    at = 0
    while at < len(own):
        period, times = _best(own, frames, at)
        if not times:
            out.append(own[at].text)
            at += 1
            continue
        out += _loop(own[at : at + period], own[at + period : at + 2 * period], times, variable)
        at += period * times
    return out


def _best(own: list[_Line], frames: list[int], at: int) -> tuple[int, int]:
    """Return (lines, passes) of the loop that saves most from line `at` on; (0, 0) if none saves enough."""
    best, saved = (0, 0), MIN_SAVED - 1
    for period in range(1, min(MOST_LINES, (len(own) - at) // 2) + 1):
        if frames[at] != frames[at + period] or frames[at : at + period] != frames[at + period : at + 2 * period]:
            continue
        body = own[at : at + period]
        if not _whole(body):
            continue
        times = 1
        while _continues(own, frames, at, period, times):
            times += 1
        if period * (times - 1) - 2 > saved:
            best, saved = (period, times), period * (times - 1) - 2
    return best


def _whole(body: Sequence[_Line]) -> bool:
    """Tell whether lines can stand in a loop: no brace is left open or closed, and numbers are small."""
    depth = 0
    for line in body:
        if depth + line.low < 0 or not line.small or "/*" in line.text:
            return False
        depth += line.balance
    return depth == 0


def _continues(own: list[_Line], frames: list[int], at: int, period: int, times: int) -> bool:
    first, new = at, at + period * times
    if new + period > len(own) or frames[first : first + period] != frames[new : new + period]:
        return False
    for k in range(period):
        a, b, c = own[first + k], own[first + period + k], own[new + k]
        if not c.small or any(
            z - x != (y - x) * times for x, y, z in zip(a.numbers, b.numbers, c.numbers, strict=True)
        ):
            return False
    return True


def _loop(body: Sequence[_Line], second: Sequence[_Line], times: int, variable: str) -> Iterator[str]:
    margin = re.match(r" *", body[0].text)
    indent = margin.group() if margin else ""
    yield f"{indent}for (uint32_t {variable} = 0; {variable} < {times}; {variable}++) {{"
    for line, following in zip(body, second, strict=True):
        steps = iter(b - a for a, b in zip(line.numbers, following.numbers, strict=True))

        def advance(match: re.Match[str], steps: Iterator[int] = steps) -> str:
            step = next(steps)
            text = f"{abs(step):#x}" if match.group(1).startswith("0x") or abs(step) >= 256 else str(abs(step))
            return match.group() if not step else f"{match.group()} {'-' if step < 0 else '+'} {text} * {variable}"

        yield "    " + _NUMBER.sub(advance, line.text)
    yield f"{indent}}}"
