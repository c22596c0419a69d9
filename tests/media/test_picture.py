"""Pictures are made to fit, and nothing that poses as one does harm."""

from __future__ import annotations

import contextlib
import io
import random
import struct

import pytest
from PIL import Image, ImageDraw
from tests.scale import FULL

from clawkit.errors import ToolInputError
from clawkit.media.local import LocalMedia
from clawkit.media.protocols import MAX_PICTURE_BYTES, Picture

from .files import opened, photo, pixel, png, png_of_zeros, save

MB = 1024 * 1024


async def fit(data: bytes, max_side: int = 1_200, max_bytes: int = 5 * MB) -> Picture:
    return await LocalMedia().picture(data, max_side=max_side, max_bytes=max_bytes)


@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_what_fits_is_left_alone(name: str) -> None:
    data = save(photo(300, 200), name)
    mime_type = f"image/{name.lower()}"
    picture = await fit(data)
    assert (picture.data, picture.mime_type, picture.original_type) == (data, mime_type, mime_type)
    assert (picture.width, picture.height, picture.original) == (300, 200, (300, 200))


@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO"])
async def test_every_format_is_made_smaller(name: str) -> None:
    data = save(photo(240, 120), name)
    before = opened(data)
    picture = await fit(data, max_side=60)
    assert (picture.width, picture.height) == (60, 30 if name != "ICO" else picture.height)
    assert picture.original == before.size
    assert picture.original_type == ("image/x-icon" if name == "ICO" else f"image/{name.lower()}")
    after = opened(picture.data)
    assert after.size == (picture.width, picture.height)
    assert Image.MIME[after.format or ""] == picture.mime_type


@pytest.mark.parametrize("name", ["BMP", "TIFF", "ICO"])
async def test_types_that_models_do_not_take_are_converted_at_their_size(name: str) -> None:
    picture = await fit(save(photo(64, 64), name))
    assert picture.mime_type in ("image/png", "image/jpeg")
    assert picture.original == (picture.width, picture.height) == (64, 64)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "LAB", "I;16", "F"])
async def test_every_kind_of_pixel_can_be_shown(mode: str) -> None:
    source = photo(40, 40).convert("L") if mode in ("I;16", "F") else photo(40, 40)
    if mode == "LAB":
        image = Image.merge("LAB", source.split())
    else:
        image = source.convert("I").convert(mode) if mode == "I;16" else source.convert(mode)
    picture = await fit(save(image, "TIFF"))
    assert opened(picture.data).mode in ("L", "RGB", "RGBA")


async def test_sixteen_bits_are_spread_over_eight() -> None:
    image = Image.new("I;16", (2, 1))
    image.putpixel((0, 0), 1_000)
    image.putpixel((1, 0), 60_000)
    shown = opened((await fit(save(image, "TIFF"))).data)
    assert [pixel(shown, x, 0) for x in (0, 1)] == [(0,), (255,)]


async def test_smaller_pictures_are_not_blown_up() -> None:
    picture = await fit(save(photo(30, 20), "BMP"))
    assert (picture.width, picture.height) == (30, 20)


async def test_a_long_thin_picture_keeps_at_least_one_pixel() -> None:
    picture = await fit(save(Image.new("RGB", (5_000, 2)), "PNG"), max_side=100)
    assert (picture.width, picture.height) == (100, 1)


@pytest.mark.parametrize("side", [1_200, 100])
@pytest.mark.parametrize("turn", range(1, 9))
async def test_a_photo_is_shown_upright(turn: int, side: int) -> None:
    image = Image.new("RGB", (200, 120), (0, 0, 255))
    image.paste((255, 0, 0), (0, 0, 60, 40))
    upright = image
    methods = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_270,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_90,
    }
    if turn in methods:
        upright = image.transpose(methods[turn])
    exif = Image.Exif()
    exif[0x0112] = turn
    picture = await fit(save(image, "JPEG", exif=exif), max_side=side)
    assert picture.original == upright.size
    shown = opened(picture.data)
    assert shown.size == (picture.width, picture.height)
    assert 0x0112 not in shown.getexif() or turn == 1
    factor = shown.width / upright.width
    for x in (10, upright.width - 10):
        for y in (10, upright.height - 10):
            is_red = pixel(upright, x, y) == (255, 0, 0)
            red, _, _ = pixel(shown, int(x * factor), int(y * factor))
            assert (red > 128) is is_red


async def test_transparency_is_kept() -> None:
    image = Image.new("RGBA", (400, 400), (255, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 200, 400))
    picture = await fit(save(image, "PNG"), max_side=100)
    shown = opened(picture.data)
    assert picture.mime_type == "image/png"
    assert shown.mode == "RGBA"
    assert pixel(shown, 5, 50) == (0, 0, 0, 0)
    assert pixel(shown, 95, 50) == (255, 0, 0, 255)


async def test_transparency_becomes_white_when_the_bytes_do_not_allow_for_it() -> None:
    image = photo(300, 300).convert("RGBA")
    image.paste((0, 0, 0, 0), (0, 0, 100, 300))
    picture = await fit(save(image, "PNG"), max_side=300, max_bytes=30_000)
    red, green, blue = pixel(opened(picture.data), 20, 150)
    assert picture.mime_type == "image/jpeg"
    assert len(picture.data) <= 30_000
    assert min(red, green, blue) > 240


async def test_a_screenshot_stays_sharp_and_a_photo_gets_small() -> None:
    screen = Image.new("RGB", (1_600, 900), (255, 255, 255))
    draw = ImageDraw.Draw(screen)
    for line in range(40):
        draw.text((10, line * 20), f"{line}: def main() -> None: ...", (20, 20, 120))
    assert (await fit(save(screen, "PNG"))).mime_type == "image/png"
    assert (await fit(save(photo(1_600, 900), "PNG"))).mime_type == "image/jpeg"
    assert (await fit(save(photo(1_600, 900).convert("L"), "JPEG"))).mime_type == "image/jpeg"


async def test_quality_goes_before_size() -> None:
    data = save(photo(1_000, 1_000), "PNG")
    best = await fit(data, max_side=1_000)
    poorer = await fit(data, max_side=1_000, max_bytes=len(best.data) - 1)
    smaller = await fit(data, max_side=1_000, max_bytes=20_000)
    assert (best.width, poorer.width) == (1_000, 1_000)
    assert smaller.width < 1_000
    assert len(poorer.data) < len(best.data)
    assert len(smaller.data) <= 20_000


async def test_bytes_that_cannot_be_reached_are_an_error() -> None:
    with pytest.raises(ToolInputError, match=r"cannot be reduced to 100 bytes"):
        await fit(save(photo(500, 500), "PNG"), max_bytes=100)


async def test_of_an_animation_the_first_picture_is_shown() -> None:
    first, second = Image.new("RGB", (300, 300), (255, 0, 0)), Image.new("RGB", (300, 300))
    data = save(first, "GIF", save_all=True, append_images=[second], duration=100)
    assert (await fit(data)).data == data
    shown = opened((await fit(data, max_side=100)).data)
    assert shown.convert("RGB").getpixel((50, 50)) == (255, 0, 0)


async def test_a_picture_in_four_inks_becomes_rgb() -> None:
    data = save(Image.new("CMYK", (50, 50), (0, 255, 255, 0)), "JPEG")
    picture = await fit(data)
    shown = opened(picture.data)
    red, green, blue = pixel(shown, 25, 25)
    assert shown.mode == "RGB"
    assert red > 200
    assert max(green, blue) < 60


async def test_a_jpeg_of_several_pictures_is_a_jpeg() -> None:
    data = save(photo(200, 200), "MPO", save_all=True, append_images=[photo(200, 200)])
    assert (await fit(data)).mime_type == "image/jpeg"
    assert (await fit(data, max_side=50)).original_type == "image/jpeg"


async def test_nothing_but_pixels_is_handed_on_from_what_is_converted() -> None:
    exif = Image.Exif()
    exif[0x010E] = "my secret place"
    data = save(photo(300, 300), "JPEG", exif=exif, comment=b"my secret place")
    assert b"secret" not in (await fit(data, max_side=100)).data


async def test_a_header_that_promises_too_much_is_refused() -> None:
    with pytest.raises(ToolInputError, match="3,600,000,000 pixels"):
        await fit(png(60_000, 60_000, b""))


async def test_a_real_picture_that_is_too_large_is_refused() -> None:
    data = png_of_zeros(20_000, 20_000)
    assert len(data) < 100_000
    with pytest.raises(
        ToolInputError, match="400,000,000 pixels, more than the limit of 25,000,000"
    ):
        await fit(data)
    with pytest.raises(ToolInputError, match="25,005,000 pixels"):
        await fit(png_of_zeros(5_000, 5_001))
    assert (await fit(png_of_zeros(5_000, 5_000))).original == (5_000, 5_000)


async def test_a_large_picture_inside_a_small_one_is_refused() -> None:
    inner = png_of_zeros(20_000, 20_000)
    entry = struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(inner), 22)
    with pytest.raises(ToolInputError, match="400,000,000 pixels"):
        await fit(struct.pack("<HHH", 0, 1, 1) + entry + inner)


async def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(ToolInputError, match="more than the limit of 10 MB"):
        await fit(bytes(MAX_PICTURE_BYTES + 1))


@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
async def test_a_truncated_picture_is_refused(name: str) -> None:
    data = save(photo(300, 300), name)
    with pytest.raises(ToolInputError, match="the image cannot be decoded: "):
        await fit(data[: len(data) // 2])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"just text",
        b"%PDF-1.7",
        b"\x89PNG\r\n\x1a\n",
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        bytes(range(256)) * 16,
    ],
)
async def test_what_is_not_a_picture_is_refused(data: bytes) -> None:
    with pytest.raises(ToolInputError, match="the image cannot be decoded: it is broken, or not"):
        await fit(data)


async def test_formats_that_no_one_asked_for_are_refused() -> None:
    buffer = io.BytesIO()
    photo(30, 30).save(buffer, "PPM")
    with pytest.raises(ToolInputError, match="or not PNG, JPEG, GIF, WEBP, BMP, TIFF or ICO"):
        await fit(buffer.getvalue())


@pytest.mark.long
@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "ICO"])
async def test_broken_pictures_never_break_the_decoder(name: str) -> None:
    chance = random.Random(name)
    data = save(photo(64, 64), name)
    media = LocalMedia()
    for _ in range(60 if FULL else 3):
        broken = bytearray(data)
        for _ in range(chance.choice((1, 5, 40))):
            broken[chance.randrange(chance.choice((60, len(data))))] = chance.randrange(256)
        # Any other error would show that the decoder, not the picture, is at fault.
        with contextlib.suppress(ToolInputError):
            await media.picture(bytes(broken), max_side=32, max_bytes=MB)
