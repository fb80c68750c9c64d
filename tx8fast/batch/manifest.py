"""A batch manifest: which models, at which sizes, in which formats, for which machines. Read, checked, expanded into jobs.

May import: files, options, errors. Must not: open a model.

    schema = 1
    include = ["zoo.toml"]                # more models, from files beside this one
    [defaults]
    dtype = "bf16"
    [[model]]
    id = "llama3-8b"                      # default: the source's name
    source = "checkpoints/llama-3-8b"     # a path or a pattern; relative paths begin at the manifest
    phase = ["prefill", "decode"]         # a list makes a job of each of its values
    seq = [512, 2048]
    past = 2048                           # of decode only, as seq is of prefill only
    chips = "auto"                        # as many as the model needs
    [[model.variant]]                     # each is the model once more, with other options
    name = "tp2"
    tp = 2
"""

from __future__ import annotations

import glob
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from tx8fast import files
from tx8fast.errors import ConfigError, raise_all
from tx8fast.options import CompileOptions
from tx8fast.records import dataclass
from tx8fast.toml_text import parse_toml

SCHEMA = 1
MAX_JOBS = 100_000
MOST_BYTES = 16 << 20  # of a manifest
MOST_EMBEDDED_MIB = 1 << 20
MOST_INCLUDES, MOST_DEPTH = 1000, 20  # files that are read, each as often as it is included, and how deep
#: option -> types of its values; a list of them makes one job each
MATRIX: dict[str, tuple[type, ...]] = {
    "phase": (str,),
    "seq": (int,),
    "past": (int,),
    "batch": (int,),
    "dtype": (str,),
    "opt": (int,),
    "machine": (str,),
    "tp": (int,),
    "chips": (int, str),
    "sharing": (bool,),
    "group_table": (str,),
    "kernels": (str,),
    "order": (str,),
    "io_dtype": (str,),
    "as_family": (str,),
    "part": (str,),
    "logits": (str,),
    "input": (str,),
    "attention_mask": (bool,),
    "source_rows": (int,),  # --source, a name that is the model's here
}
#: options whose value is one thing, list or not
SINGLE: dict[str, type] = {"dims": dict, "search_seconds": (float), "embed_limit_mib": int}
AUTO = "auto"
_GRID = re.compile(r"(\d{1,6})x(\d{1,6})")


@dataclass(frozen=True)
class Job:
    """One program to make. name: unique, made of safe characters, the path of its files below the output directory without
    their suffix; chips_auto: the smallest number of chips that holds the model is looked for."""

    name: str
    source: Path
    options: CompileOptions
    chips_auto: bool = False

    def other_options(self) -> dict[str, Any]:
        """Return the options that are not the usual ones, by name."""
        usual = CompileOptions()
        given = {k: v for k, v in vars(self.options).items() if v != getattr(usual, k)}
        return given | ({"chips": AUTO} if self.chips_auto else {})


@dataclass
class _Source:
    """A [[model]] table with where it stands."""

    where: str
    folder: Path
    table: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(default_factory=dict)


def read_manifest(path: Path) -> list[Job]:
    """Return the jobs of a manifest in its order. Raises ConfigError with everything that is wrong in it."""
    problems: list[str] = []
    sources = list(_sources(path, {}, problems, (), itertools.count(1)))
    jobs: list[Job] = []
    for source in sources:
        jobs += _jobs(source, problems)
        if len(jobs) > MAX_JOBS:
            raise ConfigError(f"reading manifest {path}: more than {MAX_JOBS:,} jobs; split it into several manifests")
    names: dict[str, Job] = {}
    for job in jobs:
        known = names.setdefault(job.name.casefold(), job)  # some file systems do not tell cases apart
        if known is not job:
            problems.append(
                f"two jobs are named '{job.name}' ({known.source} and {job.source}); give an id or a variant name"
            )
    if not jobs and not problems:
        problems.append("it has no [[model]]")
    raise_all(ConfigError, f"reading manifest {path}", problems)
    return jobs


def _sources(
    path: Path, outer: Mapping[str, Any], problems: list[str], trail: tuple[Path, ...], read: Iterator[int]
) -> Iterator[_Source]:
    if next(read) > MOST_INCLUDES or len(trail) >= MOST_DEPTH:
        raise ConfigError(
            f"reading manifest {path}: more than {MOST_INCLUDES:,} files are included, or more than {MOST_DEPTH} deep"
        )
    tree = _parse(path)
    here = path.resolve()  # of a file that could be read: no circle of links, no impossible name
    if here in trail:
        problems.append(f"{path} includes itself: {' -> '.join(str(p.name) for p in (*trail, here))}")
        return
    known = {"schema", "include", "defaults", "model"}
    problems += [f"{path}: unknown key '{k}', known are {', '.join(sorted(known))}" for k in tree if k not in known]
    if tree.get("schema") != SCHEMA:
        problems.append(f"{path}: schema is {tree.get('schema')!r}, required {SCHEMA}")
    defaults = {**outer, **_table(tree.get("defaults", {}), f"{path} [defaults]", problems)}
    _check_options(defaults, f"{path} [defaults]", problems)
    for name in _strings(tree.get("include", []), f"{path} include", problems):
        yield from _sources(path.parent / name, defaults, problems, (*trail, here), read)
    models = tree.get("model", [])
    if not isinstance(models, list):
        problems.append(f"{path}: model is {type(models).__name__}, required [[model]] tables")
        models = []
    for i, model in enumerate(models):
        where = f"{path} [[model]] {i + 1}"
        yield _Source(where, path.parent, _table(model, where, problems), defaults)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(files.read_input(path, MOST_BYTES).decode("utf-8"))
    except OSError as e:
        raise ConfigError(f"reading manifest {path}: {e.strerror or e}") from e
    except ValueError as e:
        raise ConfigError(f"reading manifest {path}: {str(e)[:300]}") from e


def _table(value: Any, where: str, problems: list[str]) -> dict[str, Any]:
    if isinstance(value, dict):
        return value
    problems.append(f"{where}: {type(value).__name__} found, a table is required")
    return {}


def _strings(value: Any, where: str, problems: list[str]) -> list[str]:
    if isinstance(value, list) and all(isinstance(v, str) for v in value):
        return value
    problems.append(f"{where}: required a list of strings")
    return []


def _check_options(table: Mapping[str, Any], where: str, problems: list[str]) -> None:
    """Add what is wrong with the keys and types of options; values are checked where they become options."""
    for key, value in table.items():
        if key in MATRIX:
            given = value if isinstance(value, list) else [value]
            if not given:
                problems.append(f"{where}: {key} is an empty list")
            problems += [
                f"{where}: {key} is {v!r}, required {' or '.join(t.__name__ for t in MATRIX[key])}"
                for v in given
                if type(v) not in MATRIX[key]
            ]
        elif key in SINGLE:
            kinds = (int, float) if SINGLE[key] is float else (SINGLE[key],)
            if type(value) not in kinds:
                problems.append(f"{where}: {key} is {value!r}, required {SINGLE[key].__name__}")
        else:
            problems.append(f"{where}: unknown option '{key}', known are {', '.join(sorted({*MATRIX, *SINGLE}))}")


def _jobs(source: _Source, problems: list[str]) -> list[Job]:
    own = {k: v for k, v in source.table.items() if k not in ("id", "source", "variant")}
    _check_options(own, source.where, problems)
    paths = _matches(source, problems)
    label = source.table.get("id", "")
    if not isinstance(label, str):
        problems.append(f"{source.where}: id is {label!r}, required a string")
        return []
    variants = source.table.get("variant", [{}])
    if not isinstance(variants, list):
        problems.append(f"{source.where}: variant is {type(variants).__name__}, required [[model.variant]] tables")
        return []
    out: list[Job] = []
    for n, variant in enumerate(variants):
        where = f"{source.where} variant {n + 1}" if "variant" in source.table else source.where
        table = dict(_table(variant, where, problems))
        name = table.pop("name", "")
        if not isinstance(name, str):
            problems.append(f"{where}: name is {name!r}, required a string")
            continue
        _check_options(table, where, problems)
        for path in paths:
            stem = (
                label
                if label and len(paths) == 1
                else "-".join(filter(None, (label, path.stem if path.is_file() else path.name)))
            )
            out += _expanded(stem, name, path, {**source.defaults, **own, **table}, where, problems)
    return out


def _matches(source: _Source, problems: list[str]) -> list[Path]:
    pattern = source.table.get("source")
    if not isinstance(pattern, str) or not pattern or "\0" in pattern:
        problems.append(f"{source.where}: source is {pattern!r}, required the path of a model or a pattern")
        return []
    whole = Path(pattern) if Path(pattern).is_absolute() else source.folder / pattern
    if whole.exists():
        return [whole]
    if not glob.has_magic(pattern):
        problems.append(f"{source.where}: {whole} does not exist")
        return []
    found = [Path(p) for p in sorted(glob.glob(str(whole), recursive=True))]
    models = [
        p
        for p in found
        if p.is_dir()
        and any((p / n).is_file() for n in ("config.json", "graph.json"))
        or p.suffix in (".onnx", ".gguf", ".mlir", ".stablehlo")
    ]
    if not models:
        problems.append(
            f"{source.where}: no model matches '{pattern}': directories with a config.json or graph.json, or .onnx, .gguf, .mlir files"
        )
    return models


def _expanded(stem: str, variant: str, path: Path, table: dict[str, Any], where: str, problems: list[str]) -> list[Job]:
    """Return one job per combination of the values of lists, each named by what tells it apart."""
    matrix = {k: v if isinstance(v, list) else [v] for k, v in table.items() if k in MATRIX}
    single = {k: v for k, v in table.items() if k in SINGLE}
    many = [k for k in MATRIX if len(matrix.get(k, ())) > 1]
    out: dict[str, Job] = {}
    if math.prod(map(len, matrix.values())) > MAX_JOBS:
        problems.append(f"{where}: its lists make more than {MAX_JOBS:,} jobs; split it into several manifests")
        return []
    for values in itertools.product(*matrix.values()):
        given = dict(zip(matrix, values, strict=True))
        _drop_other_phase(given, many)
        parts = [safe(stem), *([safe(variant)] if variant else [])]
        tags = [_tag(k, given[k]) for k in many if k in given]
        name = "/".join(parts[:1]) + "/" + "-".join(filter(None, [*parts[1:], *tags])) if variant or tags else parts[0]
        try:
            job = _job(name, path, {**given, **single})
        except ConfigError as err:
            line = f"{where}: {err}"
            if line not in problems:
                problems.append(line)
            continue
        out[name] = job
    return list(out.values())


def _drop_other_phase(given: dict[str, Any], many: list[str]) -> None:
    """A list of phases shares one table: seq is of prefill, past of decode."""
    if given.get("phase") == "prefill" and "phase" in many:
        given.pop("past", None)
    elif given.get("phase") == "decode" and "past" in given:
        given.pop("seq", None)


def _job(name: str, path: Path, given: dict[str, Any]) -> Job:
    fields = dict(given)
    chips = fields.pop("chips", None)
    auto = chips == AUTO
    if isinstance(chips, str) and not auto:
        grid = _GRID.fullmatch(chips)
        if grid is None:
            raise ConfigError(f"chips is '{chips}', required a number, a grid such as 4x2, or \"{AUTO}\"")
        fields["chips"] = int(grid[1]), int(grid[2])
    elif type(chips) is int:
        fields["chips"] = chips, 1
    if auto and "tp" in fields:
        raise ConfigError(f'chips = "{AUTO}" looks for a number of chips itself; drop tp')
    if "source_rows" in fields:
        fields["source"] = fields.pop("source_rows")
    limit = fields.pop("embed_limit_mib", None)
    if limit is not None:
        if not 0 <= limit <= MOST_EMBEDDED_MIB:
            raise ConfigError(f"embed_limit_mib is {limit}, required 0 to {MOST_EMBEDDED_MIB:,}")
        fields["embed_limit_bytes"] = limit << 20
    return Job(name, path, replace(CompileOptions(), **fields), auto)


def _tag(key: str, value: Any) -> str:
    prefix = {
        "seq": "s",
        "past": "p",
        "batch": "b",
        "opt": "opt",
        "tp": "tp",
        "chips": "chips",
        "sharing": "sharing",
        "source_rows": "rows",
    }
    text = Path(value).stem if key == "machine" else str(value).lower()
    return safe(prefix.get(key, "") + text)


def safe(text: str) -> str:
    """Return a file name made of a text: nothing that a shell, a browser or a file system reads as more than a name."""
    made = re.sub(r"[^A-Za-z0-9._+=-]+", "-", text).strip("-.")
    return made[:100] or "model"
