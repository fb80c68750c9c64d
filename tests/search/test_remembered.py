"""Plans of groups that are taken from a store: the same search with all answers known, some of them, and none."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.cnn_models import CnnBuilder
from tx8fast import api
from tx8fast.frontend import open_model
from tx8fast.graphs import lower_graph
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.search.remembered import QUESTIONS
from tx8fast.zoo import write_zoo


class Store:
    """Answers as JSON keeps them. forgets: the share of them that a search does not get."""

    def __init__(self, answers: dict | None = None, forgets: float = 0.0, seed: int = 0) -> None:
        draw = random.Random(seed)
        self.answers = {k: v for k, v in (answers or {}).items() if draw.random() >= forgets}
        self.new: dict[tuple[Any, str], str] = {}
        self.refused: list[str] = []

    def find(self, record, question):
        found = self.answers.get((record, question))
        return None if found is None else json.loads(found)

    def keep(self, record, question, answer) -> None:
        assert question in QUESTIONS and (record, question) not in self.answers
        self.new[record, question] = json.dumps(answer, allow_nan=False)

    def refuse(self, record, why) -> None:
        self.refused.append(why)
        self.answers = {k: v for k, v in self.answers.items() if k[0] != record}


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Models whose groups are products, sequences and bands of images, with options."""
    folder = tmp_path_factory.mktemp("models")
    b = CnnBuilder()
    out = b.node("Relu", b.conv(b.conv(b.conv("x", 3, 8, 3), 8, 16, 3), 16, 8, 3))
    b.save(folder / "net.onnx", (16, 3, 16, 16), out, (16, 8, 16, 16))
    write_zoo(folder)
    small = json.loads((folder / "qwen2.5-0.5b.json").read_text())
    (folder / "small.json").write_text(json.dumps({**small, "num_hidden_layers": 2, "vocab_size": 1000}))
    return {"net": (folder / "net.onnx", {"dtype": "bf16"}), "prefill": (folder / "small.json", {"seq": 32}),
            "decode": (folder / "small.json", {"phase": "decode", "past": 32})}  # fmt: skip


def search(models, name: str, opt: int, store: Store | None) -> str:
    path, given = models[name]
    options = CompileOptions(opt=opt, **given)
    ir = open_model(path, **options.import_options())
    return api.search_graph(lower_graph(ir, options).table, load_machine(options.machine), options, None, store).text()


@pytest.mark.parametrize(("name", "opt"), [("net", 2), ("prefill", 1), ("decode", 2)])
@pytest.mark.slow
def test_what_is_known_changes_nothing(models, name: str, opt: int) -> None:
    alone = search(models, name, opt, None)
    first = Store()
    assert search(models, name, opt, first) == alone and first.new
    again = Store(first.new)
    assert search(models, name, opt, again) == alone and not again.new and not again.refused
    some = Store(first.new, forgets=0.5)
    assert search(models, name, opt, some) == alone
    assert some.answers | some.new == first.new, "what is not known is found out, and nothing else"


def test_answers_of_one_level_serve_another(models) -> None:
    first = Store()
    search(models, "net", 2, first)
    second = Store(first.new)
    assert search(models, "net", 3, second) == search(models, "net", 3, None)
    assert len(second.new) < len(first.new)


@pytest.mark.slow
def test_answers_that_cannot_be_right_are_refused(models) -> None:
    """Their types, their number of factors, cuts that no tile has, failures of no kind."""
    alone, first = search(models, "prefill", 2, None), Store()
    search(models, "prefill", 2, first)
    nests = [k for k, v in first.new.items() if "nest" in json.loads(v)]

    def changed(n: int, **fields: Any) -> str:
        answer = json.loads(first.new[nests[n]])
        return json.dumps({"nest": {**answer["nest"], **fields}})

    wrong = [changed(0, parts=["x"]), changed(1, parts=[1]), changed(2, variant=99), changed(3, slices=[1 << 40] * 9),
             '{"failed": "today", "text": "", "name": ""}', "{}", '{"nest": null}']  # fmt: skip
    assert len(nests) >= len(wrong)
    store = Store(first.new | dict(zip(nests, wrong, strict=False)))
    assert search(models, "prefill", 2, store) == alone
    assert len(store.refused) == len(wrong)
