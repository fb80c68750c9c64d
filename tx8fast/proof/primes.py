"""The pair of primes of a seed, and the counter-based hash that everything random is drawn from.

May import: hashlib. Must not: keep tables of random numbers; every machine draws the same.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

#: p lies in this range: 23 bits, so that 512 centred products and a residue stay below 2^53 (a bit more would cost a quarter
#: of the speed of products, which take chunks of so many terms)
LOW, HIGH = 7_750_000, 8_380_000


def word(*parts: object) -> int:
    """Return 64 bits drawn from `parts` (integers and strings)."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def is_prime(n: int) -> bool:
    """Say whether n < 2^32 is prime (Miller-Rabin with bases 2, 7, 61, exact in that range; Jaeschke 1993)."""
    if n < 2 or any(n % k == 0 and n != k for k in (2, 3, 5, 7, 11, 13, 61)):
        return False
    odd, shift = n - 1, 0
    while odd % 2 == 0:
        odd, shift = odd // 2, shift + 1
    for base in (2, 7, 61):
        if base % n == 0:
            continue
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        if not any((x := x * x % n) == n - 1 for _ in range(shift - 1)):
            return False
    return True


@lru_cache(maxsize=64)
def primes_of(seed: int) -> tuple[int, int, int]:
    """Return (p, q, omega) of a seed: p = 2 q + 1 and q prime, omega of multiplicative order q modulo p."""
    count = 0
    while True:
        q = (LOW + word("prime", seed, count) % (HIGH - LOW)) // 2 | 1
        if is_prime(q) and is_prime(2 * q + 1):
            break
        count += 1
    p = 2 * q + 1
    root = 2 + word("omega", seed) % (p - 3)
    # squares other than 1 have order q
    return p, q, root * root % p
