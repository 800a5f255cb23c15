"""Writes the encoded pictures in `pictures/` and, by Pillow, `pictures.tsv`: name, height, width and the
SHA-256 of the RGB pixels. Also writes `nearest.tsv`, the same for JPEG files with repeated chroma, by
libjpeg-turbo; `reduced-N.tsv`, by Pillow's `draft` to 1/N of the size; and `transformed/`, Pillow's
transforms of `pictures/RGB.png`. `make.py DATA` writes only `shared.tsv`, for the pictures in the folder DATA
(jpeg-awkward, png, imagenet-sample); files that Pillow refuses have its error in place of the hash. Needs
Pillow, NumPy and simplejpeg."""

import hashlib
import io
import pathlib
import struct
import sys
import warnings
import zlib

import numpy as np
import simplejpeg
from PIL import Image, ImageEnhance, ImageFilter, ImageOps

HERE = pathlib.Path(__file__).parent
warnings.simplefilter("ignore")


def pixels(path):
    """RGB pixels by feedline's rules: alpha dropped, gray repeated, 16-bit levels cut to the high byte."""
    picture = Image.open(path)
    picture.load()
    picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I"):
        gray = (np.asarray(picture).astype(np.uint32) >> 8).astype(np.uint8)
        return np.repeat(gray[:, :, None], 3, axis=2)
    if picture.mode == "P" and "transparency" in picture.info or picture.mode in ("LA", "PA", "RGBA"):
        return np.asarray(picture.convert("RGBA"))[:, :, :3]
    return np.asarray(picture.convert("RGB"))


def nearest(path):
    """RGB pixels with repeated chroma; not for CMYK."""
    if Image.open(path).mode == "CMYK":
        raise ValueError("simplejpeg converts it in another way")
    rgb = simplejpeg.decode_jpeg(path.read_bytes(), "RGB", fastupsample=True)
    turned = Image.fromarray(rgb)
    return np.asarray(ImageOps.exif_transpose(with_orientation(turned, path)).convert("RGB"))


def reduced(divisor):
    """Returns a function for RGB pixels at 1/`divisor` of the size, rounded up."""

    def pixels(path):
        picture = Image.open(path)
        width, height = picture.size
        picture.draft(None, (max(width // divisor, 1), max(height // divisor, 1)))
        if picture.size != (-(-width // divisor), -(-height // divisor)):
            raise ValueError("Pillow does not reduce it so far")
        return np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))

    return pixels


def with_orientation(picture, path):
    """`picture` with the orientation that the file at `path` states."""
    exif = Image.Exif()
    exif[0x0112] = Image.open(path).getexif().get(0x0112, 1)
    out = io.BytesIO()
    picture.save(out, "PNG", exif=exif)
    return Image.open(out)


def line(name, path, pixels=pixels):
    try:
        rgb = pixels(path)
    except Exception as error:
        return f"{name}\trefused\t{type(error).__name__}"
    height, width, _ = rgb.shape
    return f"{name}\t{height}\t{width}\t{hashlib.sha256(rgb.tobytes()).hexdigest()}"


def picture(height=43, width=61):
    """Waves of colour, edges and noise."""
    y, x = np.mgrid[0:height, 0:width]
    noise = np.random.default_rng(7).normal(0, 12, (height, width, 3))
    rgb = np.stack([128 + 100 * np.sin(x / 7), 128 + 90 * np.cos((x + y) / 9), 255 * y / height], axis=2)
    rgb[10:20, 15:30] = [240, 20, 60]
    rgb[25:27, :] = 0
    return Image.fromarray(np.clip(rgb + noise, 0, 255).astype(np.uint8))


def png(depth, kind, interlaced, rows_of):
    """A PNG with these rows, unfiltered; `rows_of(ys, xs)` gives the bytes of each row of a pass."""
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)]
    passes += [(0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    height, width = 43, 61
    raw = b""
    for x, y, dx, dy in passes if interlaced else [(0, 0, 1, 1)]:
        for row in rows_of(range(y, height, dy), range(x, width, dx)):
            raw += b"\0" + row

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, int(interlaced))
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*parts) for parts in chunks)


def encoded():
    """Name and bytes of each picture."""
    rgb = picture()
    array = np.asarray(rgb)
    gray, cmyk = rgb.convert("L"), rgb.convert("CMYK")
    alpha = rgb.copy()
    alpha.putalpha(gray)

    def save(image, kind, **options):
        out = io.BytesIO()
        image.save(out, kind, **options)
        return out.getvalue()

    for name, sampling in [("444", 0), ("422", 1), ("420", 2)]:
        yield f"{name}.jpg", save(rgb, "JPEG", quality=85, subsampling=sampling)
        yield f"{name}-progressive.jpg", save(rgb, "JPEG", quality=70, subsampling=sampling, progressive=True)
    for name in ["440", "411"]:
        yield f"{name}.jpg", simplejpeg.encode_jpeg(np.ascontiguousarray(array), 85, "RGB", name)
    yield "best.jpg", save(rgb, "JPEG", quality=100, subsampling=0)
    yield "worst.jpg", save(rgb, "JPEG", quality=3)
    yield "gray.jpg", save(gray, "JPEG")
    yield "gray-progressive.jpg", save(gray, "JPEG", progressive=True)
    yield "cmyk.jpg", save(cmyk, "JPEG")
    yield "rgb.jpg", save(rgb, "JPEG", keep_rgb=True)
    yield "restarts.jpg", save(rgb, "JPEG", restart_marker_blocks=3)
    yield "restarts-420-progressive.jpg", save(rgb, "JPEG", restart_marker_rows=1, progressive=True)
    yield "icc.jpg", save(rgb, "JPEG", icc_profile=bytes(range(256)) * 300)
    ycck = save(cmyk, "JPEG", quality=90)
    at = ycck.index(b"Adobe") + 11
    yield "ycck.jpg", ycck[:at] + b"\2" + ycck[at + 1 :]
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation-{orientation}.jpg", save(rgb.crop((0, 0, 19, 11)), "JPEG", exif=exif)
    exif = Image.Exif()
    exif[0x0112] = 6
    for size in [(1, 1), (2, 3), (3, 2), (4, 17), (17, 4), (5, 5)]:
        yield f"{size[0]}x{size[1]}.jpg", save(rgb.crop((15, 5, 15 + size[0], 5 + size[1])), "JPEG")
    for mode in ["1", "L", "P", "RGB"]:
        yield f"{mode}.png", save(rgb.convert(mode), "PNG")
        yield f"{mode}.bmp", save(rgb.convert(mode), "BMP")
    yield "rgba.bmp", save(alpha, "BMP")
    yield "exif.png", save(rgb, "PNG", exif=exif)
    yield "RGBA.png", save(alpha, "PNG")
    yield "LA.png", save(alpha.convert("LA"), "PNG")
    yield "P-transparent.png", save(rgb.convert("P"), "PNG", transparency=3)
    yield "P-4.png", save(rgb.quantize(13), "PNG", bits=4)
    yield "I16.png", save(Image.fromarray(array[:, :, 0].astype(np.uint16) * 256 + 200), "PNG")
    deep = (array.astype(np.uint16) * 256 + array[:, :, ::-1]).astype(">u2")

    def rows(values):
        return lambda ys, xs: [values[y][list(xs)].tobytes() for y in ys if len(xs)]

    yield "RGB-16.png", png(16, 2, False, rows(deep))
    yield "RGB-interlaced.png", png(8, 2, True, rows(array))
    yield "RGB-16-interlaced.png", png(16, 2, True, rows(deep))
    yield "L-interlaced.png", png(8, 0, True, rows(np.asarray(gray)))
    yield "lossless.webp", save(rgb, "WEBP", lossless=True)
    yield "lossless-alpha.webp", save(alpha, "WEBP", lossless=True, exact=True)
    yield "lossy.webp", save(rgb, "WEBP", quality=60)
    yield "lossy-alpha.webp", save(alpha, "WEBP", quality=90)
    yield "exif.webp", save(rgb, "WEBP", lossless=True, exif=exif)
    yield "plain.gif", save(rgb, "GIF")
    yield "interlaced.gif", save(rgb.quantize(7), "GIF", interlace=True)
    yield "transparent.gif", save(rgb.convert("P"), "GIF", transparency=5)
    turned = rgb.transpose(Image.Transpose.ROTATE_180)
    yield "frames.gif", save(rgb, "GIF", save_all=True, append_images=[turned])
    # A GIF whose first frame is smaller than the screen, at (5, 3).
    small = bytearray(save(rgb.crop((0, 0, 20, 10)).quantize(16), "GIF"))
    small[6:10] = struct.pack("<HH", 40, 30)
    at = small.index(b"\x2c\0\0\0\0\x14\0")
    small[at + 1 : at + 5] = struct.pack("<HH", 5, 3)
    yield "small-frame.gif", bytes(small)


def transformed():
    """Name and picture of each transform."""
    rgb = picture()
    filters = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
    for name, number in filters.items():
        for size in [(20, 14), (100, 70), (61, 15), (7, 80)]:
            yield f"resize-{name}-{size[0]}x{size[1]}", rgb.resize(size, number)
        part = rgb.crop((11, 4, 50, 37))
        yield f"crop-{name}", part.resize((24, 24), number)
    for factor in [0.25, 1.75]:
        yield f"Brightness{factor - 1}", ImageEnhance.Brightness(rgb).enhance(factor)
        yield f"Color{factor - 1}", ImageEnhance.Color(rgb).enhance(factor)
        yield f"Contrast{factor - 1}", ImageEnhance.Contrast(rgb).enhance(factor)
        yield f"Sharpness{factor - 1}", ImageEnhance.Sharpness(rgb).enhance(factor)
    for turn in [-0.3, 0.1, 0.5]:
        h, s, v = rgb.convert("HSV").split()
        by = np.asarray(int(turn * 255)).astype(np.uint8)
        h = Image.fromarray(np.asarray(h) + by, "L")
        yield f"hue{turn}", Image.merge("HSV", (h, s, v)).convert("RGB")
    yield "gray", rgb.convert("L").convert("RGB")
    yield "Posterize3", ImageOps.posterize(rgb, 3)
    yield "Solarize100", ImageOps.solarize(rgb, 100)
    dull = rgb.point(lambda level: 40 + level // 3)
    dull.save(HERE / "transformed" / "dull.png")
    yield "AutoContrast0", ImageOps.autocontrast(dull)
    yield "Equalize0", ImageOps.equalize(rgb)

    def affine(*numbers):
        return rgb.transform(rgb.size, Image.Transform.AFFINE, numbers, Image.Resampling.NEAREST)

    yield "ShearX0.3", affine(1, 0.3, 0, 0, 1, 0)
    yield "ShearY-0.2", affine(1, 0, 0, -0.2, 1, 0)
    yield "TranslateX-7.9", affine(1, 0, -7, 0, 1, 0)
    yield "TranslateY5", affine(1, 0, 0, 0, 1, 5)
    yield "Rotate30", rgb.rotate(30)
    yield "Rotate-101", rgb.rotate(-101)


def main():
    if len(sys.argv) > 1:
        data = pathlib.Path(sys.argv[1])
        folders = ["imagenet-sample", "jpeg-awkward", "png"]
        files = [path for folder in folders for path in sorted((data / folder).iterdir())]
        text = "".join(line(path.relative_to(data), path) + "\n" for path in files)
        (HERE / "shared.tsv").write_text(text)
        return
    folder = HERE / "pictures"
    folder.mkdir(exist_ok=True)
    names = []
    for name, data in encoded():
        (folder / name).write_bytes(data)
        names.append(name)
    forms = [("nearest", nearest)] + [(f"reduced-{divisor}", reduced(divisor)) for divisor in (2, 4, 8)]
    for form, pixels_of in [("pictures", pixels)] + forms:
        lines = [line(name, folder / name, pixels_of) for name in names if form == "pictures" or name.endswith(".jpg")]
        # Files that the reference cannot decode are left out.
        lines = [line for line in lines if form == "pictures" or "refused" not in line]
        (HERE / f"{form}.tsv").write_text("".join(line + "\n" for line in lines))
    (HERE / "transformed").mkdir(exist_ok=True)
    for name, image in transformed():
        image.save(HERE / "transformed" / f"{name}.png")


if __name__ == "__main__":
    main()
