"""What may be pasted into a terminal."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, and C1: a terminal program may act on any of them.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def clean(text: str) -> str:
    """Text that is only text: newlines for carriage returns, no control characters but tab and newline."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
