"""Loops that the emitter makes of even repeats stand for the same lines."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from tx8fast.codegen.folding import fold


def unfolded(lines):
    """Return the lines that loops stand for, with the numbers that sums of theirs are."""
    out, at = [], 0
    while at < len(lines):
        head = re.fullmatch(r" *for \(uint32_t k = 0; k < (\d+); k\+\+\) \{", lines[at])
        if head is None:
            out.append(lines[at])
            at += 1
            continue
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        end = lines.index(f"{indent}}}", at)
        for k in range(int(head.group(1))):
            out += [computed(line[4:], k) for line in lines[at + 1 : end]]
        at = end + 1
    return [re.sub(r"0x[0-9a-f]+", lambda m: str(int(m.group(), 0)), line) for line in out]


def computed(line, k):
    def value(match):
        a, sign, step = match.groups()
        return str(int(a.rstrip("ul"), 0) + (-1 if sign == "-" else 1) * int(step, 0) * k)

    return re.sub(r"(\w+) ([+-]) (\w+) \* k\b", value, line)


def plain(lines):
    return [re.sub(r"0x[0-9a-f]+", lambda m: str(int(m.group(), 0)), line) for line in lines]


def test_even_repeats_become_loops():
    body = [
        line
        for k in range(5)
        for line in (f"    load(0, {0x100 + 16 * k:#x}, a2 + {140 * k}, 12);", f"    add(P, {90 - k});")
    ]
    lines = ["    wait();", *body, "    wait();"]
    folded = fold(lines)
    assert folded == [
        "    wait();",
        "    for (uint32_t k = 0; k < 5; k++) {",
        "        load(0, 0x100 + 0x10 * k, a2 + 0 + 140 * k, 12);",
        "        add(P, 90 - 1 * k);",
        "    }",
        "    wait();",
    ]
    assert unfolded(folded) == plain(lines)


def test_what_is_no_even_repeat_stays():
    for lines in (
        ["f(1);", "f(2);", "f(4);", "f(8);", "f(16);", "f(32);"],
        ["/* a */", "/* a */", "/* a */", "/* a */", "/* a */", "/* a */"],
        ["f(g->a_1);", "f(g->a_2);", "f(g->a_3);", "f(g->a_4);", "f(g->a_5);", "f(g->a_6);"],
        ["{ p(1);", "q(1); }", "{ p(2);"],
        [f"f({2**31 + k});" for k in range(8)],
    ):
        assert fold(lines) == lines


statement = st.builds(lambda name, a, b: (name, a, b), st.sampled_from("fgh"), st.integers(0, 999), st.integers(-3, 40))


@given(st.lists(st.tuples(st.lists(statement, min_size=1, max_size=4), st.integers(1, 7)), max_size=5))
def test_loops_stand_for_the_lines_they_replace(runs):
    lines = [
        f"    {name}({500 + a + step * k}, {a:#x});"
        for body, times in runs
        for k in range(times)
        for name, a, step in body
    ]
    assert unfolded(fold(lines)) == plain(lines)
