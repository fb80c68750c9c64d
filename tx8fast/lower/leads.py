"""Leading ops of a group: of equal extent, or products with columns in whole ratios.

May import: lower.{base, contraction, links, lookup}. Must not: emit instructions.
"""

from __future__ import annotations

from tx8fast.lower.base import Lowering, NotLowerable
from tx8fast.lower.contraction import Contraction
from tx8fast.lower.links import Link
from tx8fast.lower.lookup import Lookup


def lead_links(low: Lowering, lead: Lowering, own: dict[int, int]) -> list[Link]:
    """Return a leading member's loops as the group's factors, of which `own` says what they are by those of the lead."""
    width = _width(low, lead)
    wide = lead.n if width > 1 else ()  # type: ignore[attr-defined]
    if width > 1 and len(own) < len(lead.sizes):
        raise NotLowerable("products before a closing one must have equal factors")
    return [Link(own.get(f, -1), n, width=width if f in wide else 1) for f, n in enumerate(low.sizes)]


def _width(own: Lowering, lead: Lowering) -> int:
    """Return how many columns of a leading member one of the lead's stands for; all other factors are equal."""
    sizes, width = list(lead.sizes), 1
    if not isinstance(own, Contraction) or not isinstance(lead, Contraction):
        alike = type(own) is type(lead) is Lookup and own.writes[0].dims == lead.writes[0].dims
    else:
        alike = own.groups() == lead.groups() and len(sizes) == len(own.sizes)
        if alike and len(lead.n) == 1:
            (f,) = lead.n
            width = own.sizes[f] // sizes[f]
            sizes[f] *= width
    if own is not lead and not (alike and sizes == list(own.sizes)):
        raise NotLowerable("leading ops of a group must have equal factors, products columns in a whole ratio")
    return width


def heads_of(product: Contraction) -> set[int]:
    """Return the columns of a product that tell matrices of its result apart: a slice with several is no matrix of all its rows."""
    found = {f for d in product.writes[0].dims[:-1] for f, _ in d.terms}.intersection(product.n)
    return {f for f in found if product.sizes[f] > 1}
