"""Pseudo-random numbers that depend on a text only."""

import hashlib


def uniform_of(text: str) -> float:
    """Returns a pseudo-random number in [0, 1) that is the same for ``text`` in every process."""
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
