#!/usr/bin/env python3
"""Makes the font data in engine/assets/fonts/ from the fonts as distributions ship them.

    pip install fonttools pillow unicodedata2
    python3 tools/fonts/build.py JETBRAINS_DIR UNIFONT_DIR

JETBRAINS_DIR holds JetBrainsMono-Regular.ttf and JetBrainsMono-Bold.ttf (Debian: fonts-jetbrains-mono);
UNIFONT_DIR holds unifont.otf and unifont_upper.otf (Debian: fonts-unifont). Building the engine does not need this script.

unifont.png    8-bit grey, 16 bytes a row; not a picture but a deflated table. A row is 8x16 pixels: byte y holds row y of
               pixels, its highest bit leftmost. A narrow glyph is one row; a wide one is two, left half first.
unifont.index  runs of neighbouring code points of one class: u32 first code point + (class << 24), u32 count, little endian,
               ordered by code point. Class bit 0: wide; bit 1: combining, to be drawn over the cells before it.
"""

import struct
import sys
import zlib
from pathlib import Path

import unicodedata2
from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image, ImageDraw, ImageFont

TARGET = Path(__file__).resolve().parents[2] / "engine" / "assets" / "fonts"
# Never drawn: the renderer gives them no width or shows them as escapes.
INVISIBLE = [*range(0x20), *range(0x7F, 0xA0), 0xAD, *range(0x180B, 0x1810), *range(0x200B, 0x2010)]
INVISIBLE += [*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10), 0xFEFF]
DROPPED_TABLES = ["GSUB", "GPOS", "GDEF", "DSIG", "STAT", "kern", "gasp", "cvt ", "fpgm", "prep"]


def subset_vector_font(source: Path, target: Path) -> None:
    """Drops hinting, ligatures and layout tables, which a cell-by-cell renderer never reads."""
    options = subset.Options()
    options.drop_tables += DROPPED_TABLES
    options.hinting = False
    options.layout_features = []
    options.glyph_names = False
    options.name_IDs = [0, 1, 2, 5, 13, 14]
    options.recalc_timestamp = False
    font = subset.load_font(str(source), options)
    subsetter = subset.Subsetter(options)
    private = range(0xE000, 0xF900)
    subsetter.populate(unicodes=[c for c in font.getBestCmap() if c not in private and c not in INVISIBLE])
    subsetter.subset(font)
    subset.save_font(font, str(target), options)


def read_bitmaps(path: Path) -> dict[int, tuple[int, bytes]]:
    """Code point -> (class, rows of 8x16 pixels). Unifont's outlines are squares of a 16-pixel em, so this is exact."""
    face = ImageFont.truetype(str(path), 16, layout_engine=ImageFont.Layout.BASIC)
    table = TTFont(path)
    names, widths = table.getBestCmap(), table["hmtx"]
    unit = table["head"].unitsPerEm // 16
    glyphs = {}
    for code, name in names.items():
        character = chr(code)
        if unicodedata2.category(character) in ("Cc", "Cs", "Co", "Cn") or code in INVISIBLE or 0xE0000 <= code:
            continue
        advance = widths[name][0] // unit
        left, _, right, _ = face.getbbox(character, mode="1", anchor="ls")
        combining = advance == 0 or unicodedata2.category(character) in ("Mn", "Me")
        wide = left < -8 if advance == 0 else advance > 8
        cells = 2 if wide else 1
        canvas = Image.new("1", (8 * cells, 16))
        origin = 8 * cells if advance == 0 and left < 0 else 0
        ImageDraw.Draw(canvas).text((origin, 14), character, font=face, fill=1, anchor="ls")
        packed = canvas.tobytes()
        rows = b"".join(packed[half::cells] for half in range(cells))
        glyphs[code] = (int(wide) | int(combining) << 1, rows)
    return glyphs


def png(width: int, height: int, rows: bytes) -> bytes:
    """An 8-bit grey PNG without row filters."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    raw = b"".join(b"\0" + rows[y * width : (y + 1) * width] for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    packer = zlib.compressobj(9, zlib.DEFLATED, 15, 9)
    body = packer.compress(raw) + packer.flush()
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def main() -> None:
    jetbrains, unifont = Path(sys.argv[1]), Path(sys.argv[2])
    TARGET.mkdir(parents=True, exist_ok=True)
    for weight in ("Regular", "Bold"):
        name = f"JetBrainsMono-{weight}.ttf"
        subset_vector_font(jetbrains / name, TARGET / name)

    glyphs = read_bitmaps(unifont / "unifont_upper.otf") | read_bitmaps(unifont / "unifont.otf")
    runs, rows = [], []
    for code in sorted(glyphs):
        kind, bitmap = glyphs[code]
        rows.append(bitmap)
        if runs and runs[-1][1] == kind and runs[-1][0] + runs[-1][2] == code:
            runs[-1][2] += 1
        else:
            runs.append([code, kind, 1])
    table = b"".join(rows)
    (TARGET / "unifont.png").write_bytes(png(16, len(table) // 16, table))
    index = b"".join(struct.pack("<II", first | kind << 24, count) for first, kind, count in runs)
    (TARGET / "unifont.index").write_bytes(index)
    print(f"{len(glyphs)} glyphs in {len(runs)} runs")
    for path in sorted(TARGET.iterdir()):
        print(f"{path.stat().st_size:>9} {path.name}")


if __name__ == "__main__":
    main()
