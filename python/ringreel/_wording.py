"""Words of messages."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun: "1 sample", "2 samples".

    Args:
        number (int): The number.
        one (str): The noun, or more words, for 1.
        many (str | None): The words for other numbers. None (the default) adds an "s".
    """
    return f"{number} {one}" if number == 1 else f"{number} {many or one + 's'}"
