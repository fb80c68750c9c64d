"""Start of commands, cold compilation, growth with layers, and cycle simulation of an 8B model: whole processes, `config.json` only.

pytest benchmarks/bench_compile.py --benchmark-only
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

import pytest

from tx8fast.zoo import write_zoo

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
PREFILL = ["--phase", "prefill", "--seq", "2048"]


def write_config(folder, layers=32):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    return folder / "config.json"


def run(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "tx8fast", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("command", ["--version", "--help", "import tx8fast", "check"])
def test_start(benchmark, tmp_path, command):
    """Bars on a quiet machine: 100 ms, 150 ms, 30 ms above the interpreter's own, and 1 s for a configuration of 405B parameters."""
    if command == "import tx8fast":
        benchmark.pedantic(subprocess.run, args=([sys.executable, "-c", command],), kwargs={"check": True}, rounds=10)
        return
    write_zoo(tmp_path)
    arguments = (
        [command, tmp_path / "llama-3.1-405b.json", "--phase", "decode", "--past", "512"]
        if command == "check"
        else [command]
    )
    benchmark.pedantic(run, args=arguments, rounds=10)


@pytest.mark.parametrize("phase", [PREFILL, ["--phase", "decode", "--past", "2048"]], ids=["prefill", "decode"])
def test_cold_compile(benchmark, tmp_path, phase):
    """Bar: 3 s wall and 1 GiB on two cores."""
    config = write_config(tmp_path / "m")
    benchmark.pedantic(run, args=("compile", config, "-o", tmp_path / "o.tx8", *phase), rounds=3)
    benchmark.extra_info["peak_mib"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10


def test_growth_from_8_to_80_layers(benchmark, tmp_path):
    """Bar: at most 1.2."""
    configs = [write_config(tmp_path / f"m{n}", n) for n in (8, 80)]

    def ratio():
        seconds = []
        for c in configs:
            start = time.perf_counter()
            run("compile", c, "-o", tmp_path / "o.tx8", *PREFILL)
            seconds.append(time.perf_counter() - start)
        return seconds[1] / seconds[0]

    benchmark.extra_info["ratio_80_to_8"] = min(ratio() for _ in range(2))
    benchmark.pedantic(run, args=("compile", configs[1], "-o", tmp_path / "o.tx8", *PREFILL), rounds=1)


def test_cycle_simulation(benchmark, tmp_path):
    """Bar: 10 s for all tiles and layers."""
    config = write_config(tmp_path / "m")
    run("compile", config, "-o", tmp_path / "o.tx8", *PREFILL)
    benchmark.pedantic(run, args=("sim", tmp_path / "o.tx8", "--json"), rounds=3)
