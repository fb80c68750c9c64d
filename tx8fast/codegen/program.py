"""A program as one file of C: a function per segment, and the entry that every tile runs with its number.

May import: numpy, codegen.groups, machine, program. Must not: write files.
"""

from __future__ import annotations

from collections.abc import Iterator

from tx8fast.codegen.groups import Group, comment
from tx8fast.codegen.rows import literal
from tx8fast.machine import DDR_BASE, Machine
from tx8fast.program.model import Program

HEAD = """/* {title}
 *
 * Every tile runs `tile_main` with its number. Addresses in scratchpad are numbers; those in DDR are `ddr`, where the
 * host has put the parameters and the inputs (program.json), and offsets. What differs from tile to tile is in tables. All waiting
 * is written out: no function is relied upon to wait for engines by itself.
 */
#include "program.h"
#include "tx8_ops.h"
"""


def program_text(program: Program) -> Iterator[str]:
    """Yield the text of `program.c`, some lines at a time. Raises ProgramError for what C cannot say."""
    tiles = Machine.from_dict(program.machine).n_tiles
    chips = f"{program.n_chips} chips of " if program.n_chips > 1 else ""
    title = comment(f"{program.meta.get('model') or 'A program'}, {chips}{tiles} tiles")
    yield HEAD.format(title=title)
    for index, segment in enumerate(program.segments):
        yield "\n".join(Group(segment, index, tiles).text()) + "\n"
    yield "\n/* --- launches: a group, and where its arguments begin in DDR --- */\n"
    for k, launch in enumerate(program.launches):
        offsets = [literal(int(a) - DDR_BASE, True) for a in launch.args.tolist()] or ["0"]
        yield f"static const uint64_t args_{k}[] = {{{', '.join(offsets)}}};\n"
    if program.launches:
        yield "\nstatic const struct {\n    void (*group)(op_tile *t, const uint64_t *args);\n    const uint64_t *args;\n} launches[] = {\n"
        for k, launch in enumerate(program.launches):
            yield f"    {{group_{launch.segment}, args_{k}}}, /* {comment(launch.name)} */\n"
        yield "};\n"
    yield "\nvoid tile_main(uint32_t tile, uint64_t ddr) {{\n    op_tile t;\n    t.tile = {own}, t.all = tile, t.n_sent = 0, t.ddr = ddr;\n".format(
        own=f"tile % {tiles}" if program.n_chips > 1 else "tile"
    )
    if program.launches:
        yield "    for (uint32_t k = 0; k < sizeof launches / sizeof launches[0]; k++) launches[k].group(&t, launches[k].args);\n"
    else:
        yield "    (void)t; /* every result is a parameter */\n"
    yield "}\n"
