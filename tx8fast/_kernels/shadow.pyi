import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

def words(plane: Words, at: int, form: Ints, width: int, kind: int, array: Words, mode: int) -> int: ...
def centred(
    plane: Words, at: int, form: Ints, width: int, kind: int, array: Floats, modulus: int, words_q: bool
) -> int: ...
def runs(dst: Words, dst_at: int, dst_levels: Ints, src: Words, src_at: int, src_levels: Ints, size: int) -> None: ...
def drawn(
    dst_p: Words, dst_q: Words, dst_at: int, src_at: int, levels: Ints, size: int, form: Ints, width: int, kind: int,
    key: int, p: int, q: int, left_p: Floats, right_p: Floats, left_q: Floats, right_q: Floats,
) -> None: ...  # fmt: skip
def add_reduced(total: Floats, part: Floats, modulus: float) -> None: ...
def residues(total: Floats, out: Words, modulus: int) -> None: ...
def finish(
    total: Floats, out: Words, out_at: int, out_form: Ints, out_width: int, out_kind: int, add: Words, add_at: int,
    add_form: Ints, add_width: int, add_kind: int, modulus: int, words_q: bool,
) -> None: ...  # fmt: skip
