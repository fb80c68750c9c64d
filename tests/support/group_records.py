"""The groups that searches ask for, and what today's lowerings say of them."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from unittest import mock

from tests.replay.cases import CASES, MACHINE
from tx8fast.api import lower_graph, search_graph
from tx8fast.frontend import open_model
from tx8fast.graph_table import GroupRecord
from tx8fast.lower import NotLowerable, lower
from tx8fast.machine import load_machine
from tx8fast.options import CompileOptions
from tx8fast.search import planning

Asked = dict[GroupRecord, str]


def asked(name: str, opt: int = 2) -> Asked:
    """Return every group that the search of a case of the corpus asks for; "" where it is lowered, else the refusal."""
    found: Asked = {}

    def noting(record, machine):
        try:
            made = lower(record, machine)
        except NotLowerable as err:
            if isinstance(record, GroupRecord):
                found[record] = str(err)
            raise
        if isinstance(record, GroupRecord):
            found[record] = ""
        return made

    options = CompileOptions(opt=opt, machine=str(MACHINE), **CASES[name].options)
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        mock.patch.object(planning, "lower", noting),
    ):
        warnings.simplefilter("ignore")
        ir = open_model(CASES[name].write(Path(folder)), **options.import_options())
        search_graph(lower_graph(ir, options).table, load_machine(options.machine), options)
    return found
