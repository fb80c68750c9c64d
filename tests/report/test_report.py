"""The report: one file that needs nothing else, says what `sim --json` says, and shows names as names."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.checkpoints import make_checkpoint
from tests.support.cli_case import Caller, refused, write_onnx
from tests.support.png import grey
from tx8fast.demo_model import SMALL, write_config
from tx8fast.report.figures import joined
from tx8fast.report.markup import data, el, plain
from tx8fast.report.repeats import Item, Repeat, flat, fold

VOID = {"meta", "br", "col"}
HOSTILE = "</script><script>alert(1)</script>"
QUOTED = "\"><img src=x onerror='alert(2)'> \x1b[31m & ]]>"
LIMIT_BYTES = 5_000_000


class Page(HTMLParser):
    """A page read back: elements must close in order. texts: (path of tags, text); blocks: JSON by id."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.stack: list[tuple[str, dict]] = []
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[tuple[str, str]] = []
        self.by_id: dict[str, str] = {}
        self.feed(text)
        self.close()
        assert not self.stack, f"not closed: {self.stack}"

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        assert len(found) == len(attrs), f"an attribute twice: {attrs}"
        self.tags.append((tag, found))
        if tag not in VOID:
            self.stack.append((tag, found))

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1][0] == tag, f"</{tag}> closes {self.stack[-1:]}"
        self.stack.pop()

    def handle_data(self, text):
        self.texts.append(("/".join(t for t, _ in self.stack), text))
        for _, attrs in self.stack:
            if "id" in attrs:
                self.by_id[attrs["id"]] = self.by_id.get(attrs["id"], "") + text


def write(tx8: Caller, program: Path, out: Path) -> str:
    found = tx8("report", program, "-o", out)
    assert found.code == 0, found
    return out.read_text(encoding="utf-8")


@pytest.fixture
def tx8(capsys: pytest.CaptureFixture[str]) -> Caller:
    return Caller(capsys)


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    import tx8fast

    folder = tmp_path_factory.mktemp("llama")
    make_checkpoint(folder, dtype="bfloat16")
    tx8fast.compile(folder, seq=64).save(folder / "p.tx8")
    return folder / "p.tx8"


def check_offline(text: str) -> Page:
    page = Page(text)
    assert "://" not in text
    for tag, attrs in page.tags:
        assert not attrs.keys() & {"src", "href", "action", "onerror", "onclick", "onload"}, (tag, attrs)
        assert tag not in ("link", "img", "iframe", "object", "base")
    policy = [a["content"] for t, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy and policy[0].startswith("default-src 'none'")
    return page


def test_one_offline_file_that_says_what_sim_says(tx8, program, tmp_path):
    page = check_offline(write(tx8, program, tmp_path / "r.html"))
    sim = json.loads(tx8("sim", program, "--json").out)
    assert json.loads(page.by_id["tx8fast-sim"]) == sim
    answers = sim["answers"]
    # the three answers come before everything else
    before = page.by_id["answer-bound"] + page.by_id["answer-spm"] + page.by_id["answer-loss"]
    assert answers["bound_by"]["bound"] in page.by_id["answer-bound"]
    assert answers["spm_peak"]["label"] in page.by_id["answer-spm"]
    assert answers["largest_loss"]["label"] in page.by_id["answer-loss"]
    order = [text for _, text in page.texts]
    assert all(order.index(t) < order.index("Summary") for t in ("What bounds it", "What loses most")), before
    # what they mean, from the other figures
    lost = [(g["cycles"] - g["bound_cycles"]) * g["count"] for g in sim["groups"]]
    assert answers["largest_loss"]["cycles"] == max(lost)
    assert answers["spm_peak"]["bytes"] == sim["spm_peak_bytes"]
    assert answers["bound_by"]["bound"] == sim["bound"]
    assert sim["tokens"] == 64 and sim["tokens_per_second"] == pytest.approx(64 / sim["seconds"])
    # every group has a row, a timeline and a place among the layers
    rows = [a["data-group"] for t, a in page.tags if t == "tr" and "data-group" in a]
    assert sorted(map(int, rows)) == list(range(len(sim["groups"])))
    detail = json.loads(page.by_id["tx8fast-detail"])
    assert len(detail["groups"]) == len(sim["groups"]) == len(detail["names"])
    assert any(text.endswith(": 2 times, compiled once") for _, text in page.texts)


def test_timelines_add_up_to_the_simulation(tx8, program, tmp_path):
    page = Page(write(tx8, program, tmp_path / "r.html"))
    sim, detail = (json.loads(page.by_id[f"tx8fast-{n}"]) for n in ("sim", "detail"))
    for row, shown in zip(sim["groups"], detail["groups"], strict=True):
        assert shown["cycles"] == row["cycles"]
        for k, unit in enumerate(detail["lanes"]):
            busy = 0
            for tile in shown["tiles"]:
                lane = tile[k]
                assert lane[0::4] == sorted(lane[0::4])
                assert all(
                    0 <= a and n > 0 and a + n <= row["cycles"] for a, n in zip(lane[0::4], lane[1::4], strict=True)
                )
                busy += sum(n * share / 100 for n, share in zip(lane[1::4], lane[3::4], strict=True))
            if unit in ("ne", "ct"):  # engines that do one thing at a time
                assert busy <= row["busy"][unit] and busy >= 0.9 * row["busy"][unit] - 16 * 64
        assert sum(shown["link_bytes"]) == row["noc_bytes"]
        for address, size, _, _, *spans in shown["buffers"]:
            assert 0 <= address and address + size <= detail["spm_bytes"]
            assert len(spans) % 2 == 0 and spans[-2] + spans[-1] <= row["cycles"]


def test_hostile_names_are_text(tx8, tmp_path):
    from onnx import helper

    nodes = [helper.make_node("Relu", [QUOTED], ["h"], HOSTILE), helper.make_node("Exp", ["h"], [HOSTILE], QUOTED)]
    model = write_onnx(tmp_path / "m.onnx", nodes, {QUOTED: (8, 64)}, {HOSTILE: (8, 64)})
    out = tmp_path / "<b>&'\".tx8"
    assert tx8("compile", model, "-o", out, "--dtype", "bf16").code == 0
    text = write(tx8, out, tmp_path / "r.html")
    page = check_offline(text)
    assert sum(t == "script" for t, _ in page.tags) == 3 and "alert(" in text
    assert json.loads(page.by_id["tx8fast-sim"]) == json.loads(tx8("sim", out, "--json").out)
    seen = "".join(t for path, t in page.texts if not path.endswith("script"))
    assert HOSTILE in seen and "<b>" in seen
    assert "\x1b" not in text and "\\x1b[31m" in seen


@pytest.mark.slow
def test_eighty_layers_take_little_room(tx8, tmp_path):
    config = write_config(tmp_path / "m", SMALL | {"num_hidden_layers": 80})
    assert tx8("compile", config, "-o", tmp_path / "p.tx8", "--seq", "64", "--opt", "1").code == 0
    text = write(tx8, tmp_path / "p.tx8", tmp_path / "r.html")
    assert len(text.encode()) < LIMIT_BYTES
    page = Page(text)
    assert any(text == "layers 0-79: 80 times, compiled once" for _, text in page.texts)


def test_refusals(tx8, program, tmp_path):
    refused(tx8, tmp_path, "report", program, "-o", tmp_path / "r.pdf", says=("required .html",))
    refused(tx8, tmp_path, "report", program, "-o", tmp_path / "no" / "r.html", says=("does not exist",))
    refused(tx8, tmp_path, "report", tmp_path / "none.tx8", "-o", tmp_path / "r.html")
    link = tmp_path / "same.html"
    link.symlink_to(program)
    before = program.read_bytes()
    refused(tx8, tmp_path, "report", program, "-o", link, says=("input file",))
    assert program.read_bytes() == before


def test_folding():
    nodes = fold([9, *[1, 2, 2, 3] * 5, 8])
    assert isinstance(nodes[0], Item) and isinstance(nodes[2], Item) and len(nodes) == 3
    repeat = nodes[1]
    assert isinstance(repeat, Repeat) and repeat.count == 5
    assert [type(n) for n in repeat.body] == [Item, Repeat, Item]
    assert [(i.first, depth) for i, depth in flat(nodes)] == [(0, 0), (1, 1), (2, 2), (4, 1), (21, 0)]
    assert sorted(i for item, _ in flat(nodes) for i in item.all) == list(range(22))
    assert fold([]) == () and flat(fold([1, 2, 3])) == [(Item(i, (i,)), 0) for i in range(3)]


def test_narrow_stretches_are_joined():
    found = joined([(i % 3, 10 * i, 10) for i in range(5000)], 50_000)
    assert len(found) < 1300 and sum(n for *_, n in found) == 50_000


def test_markup():
    assert el("p", "<&>", class_='a"b', width=1.5) == '<p class="a&quot;b" width="1.5">&lt;&amp;&gt;</p>'
    assert plain("a\u202eb\x00\udcff") == "a\\u202eb\\x00\\udcff"
    assert "</" not in data("i", {"a": "</script><!--"}).removesuffix("</script>\n")


# ---- in a browser

SCREEN = Path(__file__).parent.parent / "golden" / "report-screen.txt"

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: runs in the page after its own script, and leaves what it has found in an attribute
PROBE = """
<script>
const out = {};
const table = document.getElementById("groups"), heads = [...table.tHead.rows[0].cells];
const column = (i) => [...table.tBodies[0].rows].map((r) => r.cells[i].dataset.v);
out.before = column(2).map(Number);
heads[2].firstElementChild.click(); out.down = column(2).map(Number);
heads[2].firstElementChild.click(); out.up = column(2).map(Number);
heads[0].firstElementChild.click(); out.names = column(0);
const canvas = document.getElementById("timeline"), span = () => canvas.dataset.to - canvas.dataset.from;
const box = canvas.getBoundingClientRect();
const wheel = (d) => canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: d, clientX: box.left + box.width / 2, cancelable: true}));
out.whole = span(); wheel(-1); wheel(-1); out.near = span();
document.getElementById("reset").click(); out.again = span();
table.tBodies[0].rows[1].click(); out.chosen = document.getElementById("picked").textContent;
const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
out.drawn = data.some((v, i) => i % 4 !== 3 && v > 0 && v < 255);
out.wide = document.documentElement.scrollWidth;
out.answers = Math.max(...["bound", "spm", "loss"].map((k) => document.getElementById("answer-" + k).getBoundingClientRect().bottom + scrollY));
document.documentElement.dataset.found = JSON.stringify(out);
</script></html>
"""


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on the PATH: the report's script is not executed")
def test_in_a_browser(tx8, program, tmp_path, request):
    """Sorting, zoom and the script's console at 1280 px; the first screen has the answers and looks as it did; it prints on a few pages."""
    text = write(tx8, program, tmp_path / "r.html")
    probed = tmp_path / "probed.html"
    probed.write_text(text.replace("</html>\n", PROBE), encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--window-size=1280,900", "--enable-logging=stderr", "--hide-scrollbars", "--force-device-scale-factor=0.5", "--dump-dom",
               f"--screenshot={tmp_path / 'screen.png'}", f"--print-to-pdf={tmp_path / 'pages.pdf'}", probed.as_uri()]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not [line for line in ran.stderr.splitlines() if "CONSOLE" in line], ran.stderr
    attrs = next(a for t, a in Page(ran.stdout.strip()).tags if t == "html")
    assert attrs.get("data-ready") == "yes"
    found = json.loads(attrs["data-found"])
    assert found["down"] == sorted(found["before"], reverse=True) and found["up"] == sorted(found["before"])
    assert sorted(found["names"], key=str.lower) == sorted(found["names"], key=str.lower)
    assert found["near"] < 0.7 * found["whole"] and found["again"] == found["whole"]
    assert found["drawn"] and re.search(r"cycles, [\d,]+ times$", found["chosen"])
    assert found["wide"] <= 1280 and found["answers"] < 900
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "pages.pdf").read_bytes())) <= 12
    pixels = grey((tmp_path / "screen.png").read_bytes())
    assert pixels.shape == (450, 640)
    # where there is anything at all: another font or another program changes two places, a card that is gone five
    ink = (1 - pixels).reshape(10, 45, 8, 80).mean((1, 3)) > 0.003
    text = "".join("".join(".#"[v] for v in row) + "\n" for row in ink.astype(int))
    if request.config.getoption("--update-golden"):
        SCREEN.write_text(text)
    assert sum(a != b for a, b in zip(text, SCREEN.read_text(), strict=True)) <= 3, text
