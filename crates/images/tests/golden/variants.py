"""Writes small pictures of every variant of BMP, PNG, GIF and WebP and prints a line for each: name, height,
width, the SHA-256 of the RGB pixels, and the file in hexadecimal. The pixels are Pillow's. BMP and PNG files
are written here from known pixels, so Pillow is checked as well, from version 13 on: older ones read some of
them wrongly. For the few variants that Pillow reads wrongly or not at all (`differs`), the known pixels are
printed.

`variants.py SEED COUNT` prints COUNT random files. `variants.tsv` is `variants.py 1 150`. Needs Pillow and
NumPy."""

import hashlib
import io
import random
import struct
import sys
import warnings
import zlib

import numpy as np
import PIL
from PIL import Image

warnings.simplefilter("ignore")

PNG_PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)]
PNG_PASSES += [(0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
MASKS = {
    16: [(0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F), (0xF00, 0xF0, 0xF), (0x1F, 0x7E0, 0xF800)],
    32: [
        (0xFF0000, 0xFF00, 0xFF),
        (0xFF000000, 0xFF0000, 0xFF00),
        (0xFF, 0xFF00, 0xFF0000),
        (0x3FF00000, 0xFFC00, 0x3FF),
    ],
}
# Pillow reads only these without a mask of alpha.
PILLOW_MASKS = MASKS[16][:2] + MASKS[32][:2]


def packed(indices, bits):
    """A row of indices, the first pixel in the highest bits."""
    text = "".join(f"{index:0{bits}b}" for index in indices)
    text += "0" * (-len(text) % 8)
    return bytes(int(text[at : at + 8], 2) for at in range(0, len(text), 8))


def rle(rows, bits, pick):
    """Rows of indices, bottom row first, run-length encoded; some zeros are skipped."""
    out = bytearray()
    width = rows.shape[1]
    for number, row in enumerate(rows):
        at = 0
        while at < width:
            left = width - at
            zeros = next((n for n, index in enumerate(row[at:]) if index), left)
            kind = pick.randrange(4)
            # A skip must not continue past the end of its row.
            if kind == 0 and 0 < zeros < left:
                out += bytes([0, 2, min(zeros, 255), 0])
                at += min(zeros, 255)
            elif kind == 1 and left >= 3:
                count = pick.randint(3, min(left, 255))
                data = packed(row[at : at + count], bits)
                out += bytes([0, count]) + data + b"\0" * (len(data) % 2)
                at += count
            elif bits == 4 and left >= 2:
                pair = row[at : at + 2]
                count = 2
                while count < min(left, 255) and row[at + count] == pair[count % 2]:
                    count += 1
                out += bytes([count, int(pair[0]) << 4 | int(pair[1])])
                at += count
            else:
                count = 1
                while count < min(left, 255) and row[at + count] == row[at]:
                    count += 1
                out += bytes([count, int(row[at]) << (4 if bits == 4 else 0)])
                at += count
        out += b"\0\0" if number + 1 < len(rows) or pick.random() < 0.5 else b""
    return bytes(out + b"\0\1")


def bmp(pick, noise, height, width):
    """Name, file, known pixels, and whether Pillow reads them otherwise or not at all."""
    bits = pick.choice([1, 4, 4, 8, 16, 16, 24, 32])
    header = pick.choice([12, 40, 40, 40, 52, 56, 64, 108, 124])
    top_down = header != 12 and pick.random() < 0.3
    kind, masks, palette, colors = "raw", b"", b"", 0
    differs = False
    entry = 3 if header == 12 else 4
    if bits <= 8:
        full = 1 << bits
        colors = pick.choice([0, full, pick.randint(2, full)]) if header > 12 else 0
        table = noise.integers(0, 256, (colors or full, 3), dtype=np.uint8)
        special = pick.random()
        if special < 0.15:
            table = np.repeat(np.arange(len(table), dtype=np.uint8)[:, None], 3, axis=1)
        elif special < 0.4 and len(table) == 2:
            table = np.array([[0] * 3, [255] * 3], np.uint8)
        shades = [0, 255] if len(table) == 2 else list(range(len(table)))
        is_gray = all((color == shade).all() for color, shade in zip(table, shades))
        palette = b"".join(bytes(color[::-1]) + b"\0" * (entry - 3) for color in table)
        # Random indices, or runs of three equal ones, as in pictures with few colours.
        indices = noise.integers(0, len(table), (height, width))
        if pick.random() < 0.5:
            indices = np.repeat(indices, 3, axis=1)[:, :width]
        if bits > 1 and header > 12 and pick.random() < 0.5:
            kind = f"rle{bits}"
        rgb = table[indices]
        # Pillow takes a palette of black and white for pixels of one bit, and one of gray for bytes.
        differs = is_gray and (bits == 4 or bits == 8 and len(table) == 2)
        if kind == "raw":
            rows = [packed(row, bits) for row in indices]
        else:
            differs = is_gray and len(table) == 2
            data = rle(indices if top_down else indices[::-1], bits, pick)
    elif bits == 24:
        rgb = noise.integers(0, 256, (height, width, 3), dtype=np.uint8)
        rows = [row[:, ::-1].tobytes() for row in rgb]
    else:
        fields = MASKS[16][1] if bits == 16 else MASKS[32][0]
        if header not in (12, 64) and pick.random() < 0.6:
            kind, fields = "masks", pick.choice(MASKS[bits])
            masks = struct.pack("<III", *fields)
            differs = fields not in PILLOW_MASKS
        pixels = noise.integers(0, 1 << bits, (height, width), dtype=np.uint64)
        channels = []
        for mask in fields:
            low = mask & -mask
            channels.append(((pixels & mask) // low) * 255 // (mask // low))
        rgb = np.stack(channels, axis=2).astype(np.uint8)
        rows = [row.astype(f"<u{bits // 8}").tobytes() for row in pixels]
    if not kind.startswith("rle"):
        rows = [row + b"\0" * (-len(row) % 4) for row in rows]
        data = b"".join(rows if top_down else rows[::-1])
    gap = pick.choice([0, 0, 0, 2, 10])
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        compression = {"raw": 0, "rle8": 1, "rle4": 2, "masks": 3}[kind]
        rows_down = -height if top_down else height
        fixed = (header, width, rows_down, 1, bits, compression, len(data), 0, 0, colors, 0)
        info = struct.pack("<IiiHHIIiiII", *fixed)
        # The mask of alpha in the larger headers is 0.
        info += (masks if header >= 52 else b"").ljust(header - 40, b"\0")
        info += masks if header == 40 else b""
    start = 14 + len(info) + len(palette) + gap
    stated = 0 if gap == 0 and pick.random() < 0.1 else start
    file = b"BM" + struct.pack("<IHHI", start + len(data), 0, 0, stated) + info + palette + b"\0" * gap + data
    name = f"{bits}-{kind}-{header}{'-top-down' if top_down else ''}-{colors}.bmp"
    return name, file, rgb, differs


def png(pick, noise, height, width):
    """As `bmp`."""
    depth, kind = pick.choice(
        [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (16, 0), (8, 2), (16, 2), (1, 3), (2, 3), (4, 3), (8, 3)]
        + [(8, 4), (16, 4), (8, 6), (16, 6)]
    )
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    chunks, colors = [], 1 << depth
    if kind == 3:
        colors = pick.randint(1, 1 << depth)
        table = noise.integers(0, 256, (colors, 3), dtype=np.uint8)
        chunks.append((b"PLTE", table.tobytes()))
    values = noise.integers(0, colors, (height, width, samples), dtype=np.uint32)
    has_key = pick.random() < 0.4
    if has_key and kind == 3:
        chunks.append((b"tRNS", noise.integers(0, 256, pick.randint(1, colors), dtype=np.uint8).tobytes()))
    elif has_key and kind in (0, 2):
        chunks.append((b"tRNS", values[0, 0].astype(">u2").tobytes()))
    if kind == 3:
        rgb = table[values[:, :, 0]]
    else:
        levels = values >> 8 if depth == 16 else values * 255 // (colors - 1)
        rgb = levels[:, :, :3] if kind in (2, 6) else np.repeat(levels[:, :, :1], 3, axis=2)
        rgb = rgb.astype(np.uint8)
    interlaced = pick.random() < 0.4
    raw = b""
    for x, y, dx, dy in PNG_PASSES if interlaced else [(0, 0, 1, 1)]:
        for row in values[y::dy, x::dx]:
            if row.size:
                flat = row.reshape(-1)
                numbers = packed(flat, depth) if depth < 8 else flat.astype(f">u{depth // 8}").tobytes()
                raw += b"\0" + numbers

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    chunks = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    file = b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*parts) for parts in chunks)
    name = f"{depth}-{kind}{'-key' if has_key else ''}{'-interlaced' if interlaced else ''}.png"
    # Pillow's conversion of 16-bit gray to RGB stops at 255: every brighter pixel is white.
    return name, file, rgb, (depth, kind) == (16, 0)


def frames(noise, height, width, mode):
    """Two frames of a picture."""
    channels = len(mode)
    for _ in range(2):
        yield Image.fromarray(noise.integers(0, 256, (height, width, channels), dtype=np.uint8), mode)


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def gif(pick, noise, height, width):
    both = frames(noise, height, width, "RGB")
    first, second = (frame.quantize(pick.choice([2, 3, 16, 200])) for frame in both)
    options = {"interlace": pick.randrange(2)}
    if pick.random() < 0.4:
        options["transparency"] = pick.randrange(2)
    if pick.random() < 0.4:
        options |= {"save_all": True, "append_images": [second], "disposal": pick.randrange(4)}
    return "-".join(options) + ".gif", saved(first, "GIF", **options), None, False


def webp(pick, noise, height, width):
    mode = pick.choice(["RGB", "RGBA"])
    first, second = frames(noise, height, width, mode)
    options = pick.choice([{"lossless": True, "exact": True}, {"quality": pick.randint(1, 100)}])
    if pick.random() < 0.4:
        options |= {"save_all": True, "append_images": [second]}
    return "-".join([mode, *options]) + ".webp", saved(first, "WEBP", **options), None, False


def pillow(file):
    """Pillow's RGB pixels, without alpha."""
    picture = Image.open(io.BytesIO(file))
    picture.load()
    if "transparency" in picture.info or picture.mode in ("LA", "PA", "RGBA"):
        return np.asarray(picture.convert("RGBA"))[:, :, :3]
    return np.asarray(picture.convert("RGB"))


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    pick, noise = random.Random(seed), np.random.default_rng(seed)
    for number in range(count):
        make = pick.choice([bmp, bmp, bmp, png, png, gif, webp])
        height, width = pick.randint(1, 12), pick.randint(1, 40)
        name, file, known, pillow_differs = make(pick, noise, height, width)
        if known is None:
            known = pillow(file)
        elif not pillow_differs and int(PIL.__version__.split(".")[0]) >= 13:
            assert (pillow(file) == known).all(), f"Pillow reads {name} in another way: {file.hex()}"
        digest = hashlib.sha256(np.ascontiguousarray(known).tobytes()).hexdigest()
        print(f"{number}-{name}\t{height}\t{width}\t{digest}\t{file.hex()}")


if __name__ == "__main__":
    main()
