"""The machine file: values, overrides, hash, and every error at once."""

from dataclasses import replace

import pytest
from support.plain import plain_machine

from tx8fast.errors import ConfigError
from tx8fast.machine import DDR_BASE, SPM_BASE, Machine, load_machine
from tx8fast.machine.config import SCHEMA, builtin_machines
from tx8fast.machine.tags import assumed_keys, changed, edited, legal, read_tags, value_of


def test_standard_chip_values():
    m = load_machine("tx8")
    assert (m.chip.tiles_x, m.chip.tiles_y, m.n_tiles) == (4, 4, 16)
    assert m.chip.ddr_bytes == 64 * 2**30
    assert m.ddr_bytes_per_cycle == 150.0
    assert (m.kcore.routine_base, m.kcore.load_cycles, m.kcore.divide_cycles) == (200, 1, 20)
    assert m.ct.factor.two_step == 8
    assert DDR_BASE == 0x2_8000_0000


def test_spm_range_for_buffers():
    m = load_machine()
    assert (m.spm_base, m.spm_limit) == (0x10000, 0x2F0000) == (SPM_BASE, 0x2F0000)
    assert m.spm_limit - m.spm_base == 3_014_656


@pytest.mark.parametrize(
    ("dtype", "tera_ops"), [("bf16", 131.072), ("i8", 262.144), ("tf32", 131.072), ("f32", 21.845)]
)
def test_peaks(dtype, tera_ops):
    m = load_machine()
    assert m.peak_macs_per_cycle(dtype) * 2 * m.chip.clock_hz / 1e12 == pytest.approx(tera_ops, rel=1e-4)


def test_peak_of_a_format_without_matrix_support():
    with pytest.raises(ConfigError, match="i32"):
        load_machine().peak_macs_per_cycle("i32")


def test_builtin_machines_and_small_grid():
    assert builtin_machines() == ["test_2x2", "tx8"]
    small, full = load_machine("test_2x2"), load_machine("tx8")
    assert small.n_tiles == 4
    without = replace(full.tile, spm_model=1, spm_fifo_beats=16), replace(full.ne, startup=60)
    assert (small.tile, small.ne) == without


def test_every_key_is_commented_with_a_source():
    from importlib import resources

    text = resources.files("tx8fast.machine").joinpath("configs", "tx8.toml").read_text("utf-8")
    lines = [line for line in text.splitlines() if "=" in line and not line.startswith("#")]
    assert len(lines) == len(SCHEMA)
    assert sorted(read_tags("tx8")) == sorted(SCHEMA)


def test_round_trip_and_digest():
    m = load_machine()
    again = Machine.from_dict(m.to_dict())
    assert again == m and again.digest == m.digest and len(m.digest) == 64
    assert m.to_dict()["ne"]["groups"] == {"bf16": 4, "fp16": 4, "tf32": 4, "int8": 8}
    assert m.digest != load_machine("test_2x2").digest


def test_override_wins_and_changes_the_digest():
    m = load_machine("tx8", {"chip.ddr_bw": 100, "ne.groups.int8": 4})
    assert m.ddr_bytes_per_cycle == 75.0 and m.ne.groups_int8 == 4
    assert m.digest != load_machine().digest
    assert load_machine("tx8", {"chip.ddr_bw": 200.0}).digest == load_machine().digest


def test_all_problems_in_one_message():
    data = load_machine().to_dict()
    data["chip"]["ddr_bw"] = 0
    data["chip"]["tiles_x"] = -4
    data["ne"]["groups"]["bf16"] = "4"
    data["ct"]["startup"] = 1.5
    data["tile"]["workers"] = True
    data["chip"]["clock_hz"] = float("inf")
    data["noc"]["speed"] = 3
    data["wrong"] = {}
    del data["sync"]["handshake"]
    with pytest.raises(ConfigError) as err:
        Machine.from_dict(data)
    text = str(err.value)
    for part in (
        "9 problems",
        "$.chip.ddr_bw: found 0, required more than 0",
        "$.chip.tiles_x: found -4, required at least 1",
        "$.ne.groups.bf16: found str '4', required a whole number",
        "$.ct.startup: found float 1.5",
        "$.tile.workers: found bool True",
        "$.chip.clock_hz: found inf",
        "$.noc.speed: unknown key",
        "$.wrong: unknown key",
        "$.sync.handshake: missing",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tile.spm_reserved_low", 3145728, "more than the reserved"),
        ("chip.ddr_efficiency", 1.5, "at most 1"),
        ("tile.serial_mode", 2, "0 (parallel) or 1"),
        ("chip.tiles_x", 16, "found 64 tiles, required at most 63"),
        ("ne.startup", 10**20, "at most 281474976710656"),
        ("chip.ddr_page", 5000, "power of two"),
        ("tile.spm_align", 128, "at least 256"),
    ],
)
def test_rules_beyond_one_key(key, value, message):
    with pytest.raises(ConfigError) as err:
        load_machine("tx8", {key: value})
    assert f"$.{key.replace('_reserved_low', '_bytes')}" in str(err.value) and message in str(err.value)


def test_buffers_begin_at_the_alignment():
    with pytest.raises(
        ConfigError, match="spm_reserved_low: found 127 bytes, required a multiple of tile.spm_align, 256"
    ):
        load_machine("tx8", {"tile.spm_reserved_low": 127})


def test_penalties_may_be_zero():
    assert load_machine("tx8", {"chip.ddr_page_penalty": 0}).chip.ddr_page_penalty == 0


def test_unreadable_sources(tmp_path):
    with pytest.raises(ConfigError, match="built-in machines: test_2x2, tx8"):
        load_machine("nowhere")
    bad = tmp_path / "bad.toml"
    bad.write_text("[chip\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_machine(bad)
    bad.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="loading machine"):
        load_machine(bad)
    with pytest.raises(ConfigError, match="is not a table"):
        load_machine("tx8", {"chip.ddr_bw.x": 1})


def test_a_machine_file_by_path(tmp_path):
    from importlib import resources

    text = resources.files("tx8fast.machine").joinpath("configs", "tx8.toml").read_text("utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert load_machine(path) == load_machine("tx8") == load_machine(str(path))


def test_keys_of_older_files_that_mean_nothing_any_more_are_passed_over():
    old = load_machine().to_dict()
    old["kcore"]["routine_cycles_per_elem"] = 4.0
    old["noc"]["packet_bytes"] = 256
    old["dma"]["double_buffer"] = 2
    assert Machine.from_dict(old) == load_machine()
    with pytest.raises(ConfigError, match="routine_cycles_per_elem: it is no longer used; see kcore.load_cycles"):
        load_machine("tx8", {"kcore.routine_cycles_per_elem": 3})
    with pytest.raises(ConfigError, match="packet_bytes: it is no longer used; see noc.link_bytes"):
        load_machine("tx8", {"noc.packet_bytes": 512})


def test_files_from_before_a_choice_of_models():
    old = plain_machine().to_dict()
    assert old["tile"].pop("spm_model") == 1
    assert Machine.from_dict(old) == plain_machine()


def test_keys_that_came_later_leave_machines_as_they_were():
    """A machine at the values of files from before is written as then: programs made for it keep their bytes."""
    m = plain_machine()
    assert "spm_fifo_beats" not in m.to_dict()["tile"]
    other = plain_machine(**{"tile.spm_fifo_beats": 12})
    assert other.to_dict()["tile"]["spm_fifo_beats"] == 12 and other.digest != m.digest
    assert Machine.from_dict(other.to_dict()) == other
    with pytest.raises(ConfigError, match="spm_fifo_beats: found 0, required at least 1"):
        load_machine("tx8", {"tile.spm_fifo_beats": 0})


def test_tags_are_read_from_the_comments(tmp_path):
    tags = read_tags()
    assert tags["rdma.startup"] == ("assumed",) and tags["kcore.routine_base"] == ("ours", "assumed")
    assert {"rdma.startup", "ct.factor.lut", "noc.hop_cycles"} <= set(assumed_keys(tags))
    assert not {"tile.spm_model", "chip.clock_hz", "kcore.wait_cycles"} & set(assumed_keys(tags))
    path = tmp_path / "mine.toml"
    path.write_text(
        "[rdma]\nstartup = 3 # cycles, ten of them; measured on a card, assumed twice\n[wdma]\nstartup=1 # we; think so\n"
    )
    assert read_tags(path) == {"rdma.startup": ("measured", "assumed")}


def test_values_next_to_others():
    assert legal("rdma.startup", 150.5) == 151 and legal("rdma.startup", -3) == 0
    assert [legal("chip.ddr_burst", x) for x in (32, 96, 0.1)] == [32, 128, 1]
    assert legal("kcore.function_cycles", 59.6) == 60
    m = changed(load_machine(), {"rdma.startup": 7, "ne.groups.bf16": 2})
    assert value_of(m, "rdma.startup") == 7 and m.ne.groups_bf16 == 2


def test_edited_files_keep_their_other_lines(tmp_path):
    from importlib import resources

    text = resources.files("tx8fast.machine").joinpath("configs", "tx8.toml").read_text("utf-8")
    after = edited(text, {"rdma.startup": 290, "wdma.startup": 200}, "fitted")
    different = [(a, b) for a, b in zip(text.splitlines(), after.splitlines(), strict=True) if a != b]
    assert [b.split() for _, b in different] == [["startup", "=", v, "#", "cycles;", "fitted"] for v in ("290", "200")]
    path = tmp_path / "fitted.toml"
    path.write_text(after)
    assert load_machine(path) == changed(load_machine(), {"rdma.startup": 290, "wdma.startup": 200})
    assert read_tags(path)["rdma.startup"] == ("fitted",)
    with pytest.raises(ConfigError, match="no line of its own"):
        edited("[rdma]\n", {"rdma.startup": 1}, "fitted")
