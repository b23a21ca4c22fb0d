"""The numbers of a page as text, and the script that reads and draws them."""

import base64
import gzip
import json
import pathlib
from typing import Any

import numpy as np
from jaxtyping import ArrayLike

_HERE = pathlib.Path(__file__).parent


class Content:
    """A JSON header with arrays kept apart as bytes."""

    def __init__(self):
        self.arrays: list[np.ndarray] = []

    def add(self, array: ArrayLike, dtype: str = "<f4") -> dict[str, int]:
        """Keep an array and return what stands for it in the header."""
        self.arrays.append(np.ascontiguousarray(array, dtype))
        return {"__array__": len(self.arrays) - 1}

    def encoded(self, header: dict[str, Any]) -> str:
        """Header and arrays as base64 of a gzip of: the length of the header as four bytes, the
        header, and the arrays, all filled up to multiples of 8 bytes."""
        table, start, pieces = [], 0, []
        for array in self.arrays:
            data = array.tobytes()
            table.append([array.dtype.str, start, array.size])
            pieces.append(data + bytes(-len(data) % 8))
            start += len(pieces[-1])
        text = json.dumps(header | {"arrays": table}, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 4) % 8)
        whole = len(text).to_bytes(4, "little") + text + b"".join(pieces)
        return base64.b64encode(gzip.compress(whole, 9, mtime=0)).decode()


def embedded(content: Content, header: dict[str, Any], style: str, script: str) -> str:
    """What a page holds of its own: a style, the numbers, `parts.js`, and its script."""
    parts = (_HERE / "parts.js").read_text(encoding="utf-8")
    return (
        f"<style>{style}</style>"
        f'<script type="text/plain" id="jaxmbd-content">{content.encoded(header)}</script>'
        f"<script>{parts}{script}</script>"
    )
