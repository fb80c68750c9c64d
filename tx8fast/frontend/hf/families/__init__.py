"""Every family that is read without an export, by `model_type`: a row each.

May import: frontend.hf. Must not: know the IR or weights.
"""

from tx8fast.frontend.hf.families import (
    cells,
    delta,
    detection,
    encoders,
    experts,
    gemma,
    gemma4,
    gpt,
    hybrid,
    layered,
    leaning,
    linear,
    llama,
    recurrent,
    seq2seq,
    short_conv,
    sparse,
    vision,
    zamba,
)
from tx8fast.frontend.hf.family import Family

FAMILIES: dict[str, Family] = {
    name: family
    for module in (
        llama,
        layered,
        gemma,
        gemma4,
        gpt,
        leaning,
        experts,
        sparse,
        encoders,
        vision,
        cells,
        detection,
        seq2seq,
        short_conv,
        hybrid,
        zamba,
        delta,
        recurrent,
        linear,
    )
    for name, family in module.FAMILIES.items()
}
