"""The C header of the public interface, and the C model's side of it: how every member makes the row that the core executes.

May import: codegen.abi, isa. Must not: hold a name of its own beside control and messages (TX8 hardware manual 14.4, 17.5, 17.6).
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast import isa
from tx8fast.codegen.abi import CLASSES, FORMATS, ROUNDING, Call, calls, steps

_WRITTEN = "/* Written by tx8fast from its declarations of the instruction set. Do not edit. */"
PACKETS = (
    "Arith",
    "Relation",
    "Logic",
    "Transcendental",
    "Activation",
    "Convert",
    "Reduce",
    "Pool",
    "UnPool",
    "MaskDataMove",
    "Peripheral",
    "DataMove",
    "Ne",
    "Rdma",
    "Wdma",
)


def members() -> dict[str, dict[str, list[tuple[str, Call]]]]:
    """Return table -> member -> (instruction, call) of all that fill in its packets; of members in common, the first."""
    out: dict[str, dict[str, list[tuple[str, Call]]]] = {}
    several = ((name, call) for name, found in steps().items() for call in found)
    for name, call in (*calls().items(), *several):
        if name in ("depthwise", "backward_conv"):
            continue
        out.setdefault(call.table, {}).setdefault(call.member, []).append((name, call))
    return out


def packet(table: str) -> str:
    """Return the type of a table's packets."""
    name = table[0].upper() + table[1:]
    return f"Tsm{'Ne' if name in ('Gemm', 'Conv') else name}Instr"


def signature(table: str, call: Call, name: str) -> str:
    """Return a declaration without its end."""
    params = "".join(f", {p.ctype} {p.name}" for p in call.params)
    return f"void {name}({packet(table)} *packet{params})"


def header() -> str:
    """Return `tx8_abi.h`."""
    lines = [
        _WRITTEN,
        "#ifndef TX8_ABI_H\n#define TX8_ABI_H\n#include <stdint.h>",
        '#ifdef __cplusplus\nextern "C" {\n#endif',
        "\ntypedef enum {",
        *(f"    {name} = {code}," for code, name in FORMATS.items()),
        "} Data_Format;\n\ntypedef enum {",
        *(f"    {name} = {code}," for code, name in enumerate(ROUNDING)),
        "} RND_MODE;\n\n/* the class of a packet; bits 8 and 9 are the worker, a window of registers */\nenum {",
        *(f"    {name} = {k}," for k, name in enumerate(CLASSES.values())),
        "};\n\n/* (n, h, w, c), or (top, bottom, left, right), or (Kx, Ky, Sx, Sy) */",
        "typedef struct {\n    uint16_t n, h, w, c;\n} Data_Shape;",
        "\n/* An instruction before it is issued; {class, {0}, {0}} is an empty one. result: of instructions that give a number. */",
        "typedef struct {\n    uint32_t type;\n    uint64_t param[34];\n    uint64_t result[2];\n} TsmInstr;",
        *(f"typedef TsmInstr Tsm{name}Instr;" for name in PACKETS),
    ]
    for table, found in members().items():
        lines.append("\ntypedef struct {")
        for own in found.values():
            name, call = own[0]
            lines.append(f"    {signature(table, call, f'(*{call.member})')};")
        lines.append(f"}} {call.type};")
    lines.append("\ntypedef struct {")
    lines += [
        f"    const {next(iter(found.values()))[0][1].type} *{table}_pointer;" for table, found in members().items()
    ]
    lines += [
        "} TsmOpPointer;",
        _CONTROL,
        "#ifdef __cplusplus\n}\n#endif\n#endif",
    ]
    return "\n".join(lines) + "\n"


_CONTROL = """
const TsmOpPointer *getTsmOpPointer(void);
/* Issue an instruction; returns the cycles that its engine is busy, the transfer of its bytes left out. */
uint64_t TsmExecute(const TsmInstr *packet);

/* Wait for this tile's engines: all, or what one worker has issued. */
void TsmWaitfinish(void);
void TsmWaitfinish_bywork(uint32_t worker);
/* Wait for all tiles of the chip: arrive, and leave once all have arrived. */
void __AtomicBarrierIn(void);
void __AtomicBarrierOut(void);
/* Wait for `count` tiles, this one among them. */
void __BarrierSubgroup(uint32_t *physical_ids, uint32_t count);
/* Meet another tile. */
void tile_sync_by_spm_single_direction(uint32_t tile);

/* Messages between scratchpads. mode: bytes for one tile; the same for several; `length` for each, one after the other; runs
 * that add up to `length`, gathered by the strides, for one. */
enum { DTE_UNICAST, DTE_BROADCAST, DTE_SCATTER, DTE_GATHER };
typedef struct {
    uint64_t src, dst;
    uint32_t length, remote_fsm_id, mode;
    uint32_t dst_tile[32], dest_num; /* of so many tiles, less one */
    uint32_t tile_this;
    uint32_t stride[3], iteration[3];
    int32_t node;
} direct_dte_info;
int32_t direct_dte_attach(uint32_t high_perf);
void direct_dte_send_async(direct_dte_info *info);
void direct_dte_wait_done(direct_dte_info *info);
void direct_dte_release(int32_t node);
/* A monitor counts what arrives: packets of at most so many bytes. Receiving takes `bytes` off it as soon as they are there. */
void direct_fsm_monitor_init(uint32_t fsm, uint64_t addr, uint32_t packet_size, uint32_t packet_cnt);
void direct_fsm_monitor_receive(uint32_t tile_this, uint32_t bytes, uint32_t fsm);
void direct_fsm_monitor_deinit(uint32_t fsm);

/* --- between chips, ours: what the public functions say of tiles of one chip --- */

/* Send a message to the tiles `dst_tile` of a chip. */
void op_dte_send_chip(direct_dte_info *info, uint32_t chip);
/* Meet a tile of a chip. */
void op_sync_chip(uint32_t chip, uint32_t tile);

/* --- the run-time library of the kernel core, ours --- */

/* Call a routine on tensors in DDR. call: the words that `isa/routines` describes; slots: DDR addresses that it counts from. The
 * rest is its work, as the cost model counts it. */
void op_routine(const int64_t *call, uint32_t words, const uint64_t *slots, uint32_t n_slots, uint64_t loads, uint64_t stores,
                uint64_t ops, uint64_t divides, uint64_t functions);
/* Read a number of format `fmt` at `number` and load that row of a table in DDR; a negative number counts from the end. */
void op_rdmaGather(uint32_t worker, uint64_t dst, uint64_t table, uint32_t run_bytes, uint64_t stride, uint64_t entries,
                   uint64_t number, uint32_t fmt);
/* The same for a table in scratchpad: runs of `size` bytes, strided on both sides. */
void op_tdmaGather(uint32_t worker, uint64_t dst, uint64_t table, uint32_t size, uint64_t stride, uint64_t entries,
                   uint64_t number, uint32_t fmt, uint32_t src_stride, uint32_t src_iter, uint32_t dst_stride, uint32_t dst_iter);
"""


def source() -> str:
    """Return `model_calls.c`: every member as the row that it makes."""
    return "\n".join([_WRITTEN, '#include "model.h"', *_members()]) + "\n"


def _members() -> Iterator[str]:
    for table, found in members().items():
        yield from _first(table, next(iter(found.values()))[0][0])
        for own in found.values():
            name, call = own[0]
            yield f"\nstatic {signature(table, call, f'{table}_{call.member}')} {{"
            yield (
                f"    tx8_row *row = {table}_row(packet);"
                if name in steps()
                else f"    tx8_row *row = tx8_packet(packet, {_base(name):#x});"
            )
            for param in call.params:
                yield from _assign(name, param)
            for field, value in call.sets:
                yield f"    {_place(name, field)} = {value};"
            yield "}"
        yield f"\nstatic const {call.type} {table}_table = {{"
        yield from (f"    {table}_{member}," for member in found)
        yield "};"
    yield "\nconst TsmOpPointer *getTsmOpPointer(void) {\n    static const TsmOpPointer all = {"
    yield from (f"        &{table}_table," for table in members())
    yield "    };\n    return &all;\n}"


def _first(table: str, name: str) -> Iterator[str]:
    """Of packets that several members fill in: what they hold before the first."""
    if name not in steps():
        return
    yield f"\nstatic tx8_row *{table}_row({packet(table)} *packet) {{"
    yield f"    bool empty = !packet->param[TX8_FILLED];\n    tx8_row *row = tx8_packet(packet, {_base(name):#x});"
    yield "    if (!empty) return row;"
    yield from (f"    {_place(name, f)} = {value};" for f, value in isa.INSTRUCTIONS[name].DEFAULTS.items() if value)
    yield "    return row;\n}"


def _base(name: str) -> int:
    return isa.INSTRUCTIONS[name].OPCODE


def _place(name: str, field: str) -> str:
    cls = isa.INSTRUCTIONS[name]
    if field in ("fmt", "rnd", "ddr"):
        return f"row->{field}"
    if field in cls.FIELDS_SPM:
        return f"row->spm[{cls.FIELDS_SPM.index(field)}]"
    return f"row->p[{cls.FIELDS_P.index(field)}]"


def _cast(place: str) -> str:
    if place.startswith("row->p[") or place == "row->ddr":
        return "(int64_t)"
    return "(int32_t)" if place.startswith("row->spm") else "(uint8_t)"


def _assign(name: str, param) -> Iterator[str]:
    if param.derive is not None:
        yield f"    (void){param.name};"
    elif param.fields == ("type",):
        yield f"    row->opcode = (uint16_t)({_base(name):#x} + type);"
    elif param.ctype != "Data_Shape":
        place = _place(name, param.fields[0])
        yield f"    {place} = {_cast(place)}{param.name};"
    else:
        cls = isa.INSTRUCTIONS[name]
        for field, part in zip(param.fields, "nhwc"):
            if field in cls.FIELDS_P:
                yield f"    {_place(name, field)} = {param.name}.{part};"
