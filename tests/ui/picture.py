"""PNG files with a palette of 256 colours: a quarter of the size, and a page looks the same."""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter

from playwright.sync_api import Page

_COLOURS = 256
_PIXELS = """async (data) => {
  const image = await createImageBitmap(await (await fetch('data:image/png;base64,' + data)).blob());
  const canvas = new OffscreenCanvas(image.width, image.height).getContext('2d');
  canvas.drawImage(image, 0, 0);
  const all = canvas.getImageData(0, 0, image.width, image.height).data;
  let text = '';
  for (let i = 0; i < all.length; i += 32768) text += String.fromCharCode(...all.subarray(i, i + 32768));
  return [image.width, image.height, btoa(text)];
}"""


def smaller(page: Page, png: bytes) -> bytes:
    """The same picture; `page` is any blank one, whose browser decodes it."""
    width, height, text = page.evaluate(_PIXELS, base64.b64encode(png).decode())
    pixels = struct.unpack(f"<{width * height}I", base64.b64decode(text))
    counted = Counter(pixels).most_common()
    palette = [_rgb(colour) for colour, _ in counted[:_COLOURS]]
    nearest = {colour: _nearest(palette, _rgb(colour)) for colour, _ in counted}
    indexed = bytes(nearest[pixel] for pixel in pixels)
    rows = b"".join(b"\0" + indexed[y * width : (y + 1) * width] for y in range(height))
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", b"".join(bytes(one) for one in palette)),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        ]
    )


def _rgb(pixel: int) -> tuple[int, int, int]:
    return pixel & 255, pixel >> 8 & 255, pixel >> 16 & 255


def _nearest(palette: list[tuple[int, int, int]], wanted: tuple[int, int, int]) -> int:
    red, green, blue = wanted
    away = [(r - red) ** 2 + (g - green) ** 2 + (b - blue) ** 2 for r, g, b in palette]
    return away.index(min(away))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
