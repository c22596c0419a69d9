"""Pages of PDFs: their text, or a picture of them."""

from __future__ import annotations

import random
import zlib

import pytest

from clawkit.errors import ToolInputError
from clawkit.media.decoder import MAX_PAGE_CHARS
from clawkit.media.local import LocalMedia
from clawkit.media.protocols import MAX_DOCUMENT_BYTES, DocumentPage, DocumentPages

from .files import bomb_pdf, drawing_pdf, opened, pdf, photo, pixel, save, stream, text_pdf


async def pages(data: bytes, first: int = 1, last: int = 1) -> DocumentPages:
    return await LocalMedia().pages(data, first, last)


async def test_text_is_read_page_by_page() -> None:
    data = text_pdf("Grüße\nsecond line", "two", "three")
    assert await pages(data, 1, 2) == DocumentPages(
        (DocumentPage(1, "Grüße\nsecond line"), DocumentPage(2, "two")), 3
    )


async def test_a_word_that_is_broken_by_a_hyphen_can_be_read() -> None:
    assert (await pages(text_pdf("an exam-\nple of it"))).pages[0].text == "an exam-\nple of it"


async def test_a_range_ends_with_the_document_and_after_fifty_pages() -> None:
    data = text_pdf(*(f"page {number}" for number in range(1, 201)))
    document = await pages(data, 191, 400)
    assert [page.text for page in document.pages] == [f"page {n}" for n in range(191, 201)]
    assert document.total == 200
    document = await pages(data, 21, 200)
    assert [page.number for page in document.pages] == list(range(21, 71))


async def test_a_page_before_the_first_is_the_first() -> None:
    assert [page.number for page in (await pages(text_pdf("one", "two"), -3, 1)).pages] == [1]


async def test_a_page_past_the_end_is_refused_with_the_number_of_pages() -> None:
    with pytest.raises(ToolInputError, match="no page 3: it has 2 pages"):
        await pages(text_pdf("one", "two"), 3, 5)


async def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ToolInputError, match="no pages from 4 to 2"):
        await pages(text_pdf("one"), 4, 2)


async def test_scanned_pages_come_as_pictures_and_only_the_first_few() -> None:
    scans = [photo(170, 220) for _ in range(7)]
    document = await pages(save(scans[0], "PDF", save_all=True, append_images=scans[1:]), 1, 7)
    shown = [page.picture for page in document.pages]
    assert [picture is not None for picture in shown] == [True] * 5 + [False] * 2
    assert not any(page.text for page in document.pages)
    first = shown[0]
    assert first is not None
    assert max(first.width, first.height) == 1_200
    assert opened(first.data).size == (first.width, first.height)
    assert (first.mime_type, first.original_type) == ("image/jpeg", "application/pdf")


async def test_a_drawn_page_shows_what_is_drawn() -> None:
    picture = (await pages(drawing_pdf(b"1 0 0 rg 0 0 306 792 re f"))).pages[0].picture
    assert picture is not None
    assert picture.mime_type == "image/png"
    shown = opened(picture.data)
    assert [pixel(shown, x, 600) for x in (100, 800)] == [(255, 0, 0), (255, 255, 255)]


async def test_an_empty_page_is_not_a_picture() -> None:
    assert (await pages(text_pdf(""))).pages == (DocumentPage(1, ""),)


async def test_a_page_of_too_much_text_is_cut() -> None:
    text = "\n".join(["abcdefghij" * 5] * 5_000)
    shown = (await pages(text_pdf(text, box=b"0 -200000 612 792"))).pages[0].text
    assert len(shown) == MAX_PAGE_CHARS
    assert shown.endswith("[… the rest of this page is left out …]")


async def test_an_encrypted_document_is_refused() -> None:
    keys = b"<</Filter/Standard/V 1/R 2/P -4/O<%s>/U<%s>>>" % (b"41" * 32, b"42" * 32)
    data = pdf(
        [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[]/Count 0>>", keys],
        b"/Encrypt 3 0 R/ID[<00><00>]",
    )
    with pytest.raises(ToolInputError, match="encrypted"):
        await pages(data)


@pytest.mark.parametrize("data", [b"", b"hello", b"%PDF-1.7\n" + random.Random(1).randbytes(9_000)])
async def test_what_is_not_a_document_is_refused(data: bytes) -> None:
    with pytest.raises(ToolInputError, match="it is broken, or not a PDF"):
        await pages(data)


async def test_a_document_without_its_end_is_mended_or_refused() -> None:
    data = text_pdf("one", "two")
    assert (await pages(data[: data.index(b"startxref")])).pages[0].text == "one"
    with pytest.raises(ToolInputError, match="cannot be decoded"):
        await pages(data[:100])


async def test_pages_that_are_only_promised_are_told() -> None:
    catalog, page = b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Page/Parent 2 0 R>>"
    data = pdf([catalog, b"<</Type/Pages/Kids[3 0 R]/Count 2>>", page])
    document = await pages(data, 1, 9)
    assert document.pages[0] == DocumentPage(1, "")
    assert "cannot be decoded" in document.pages[1].text


async def test_too_many_bytes_are_refused() -> None:
    with pytest.raises(ToolInputError, match="more than the limit of 64 MB"):
        await pages(bytes(MAX_DOCUMENT_BYTES + 1))


async def test_a_document_as_large_as_allowed_is_read() -> None:
    data = text_pdf("one")
    filler = b"%" + b"x" * (MAX_DOCUMENT_BYTES - len(data) - 2) + b"\n"
    assert (await pages(data + filler)).pages[0].text == "one"


@pytest.mark.parametrize("box", [b"0 0 1000000 1000000", b"0 0 1000000 1", b"0 0 1e30 1e30"])
async def test_a_page_of_any_size_becomes_a_picture_of_ours(box: bytes) -> None:
    picture = (await pages(drawing_pdf(b"0 0 900000 900000 re f", box=box))).pages[0].picture
    assert picture is not None
    assert max(picture.width, picture.height) == 1_200


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pdf([b"[" * 200_000 + b"]" * 200_000]), id="nested objects"),
        pytest.param(drawing_pdf(b"[" * 500_000), id="nested content"),
        pytest.param(drawing_pdf(b"q " * 200_000 + b"/X5 Do"), id="saved states"),
        pytest.param(
            pdf([b"<</Pages 2 0 R>>", b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 1000000000>>"]),
            id="pages that hold themselves",
        ),
        pytest.param(
            drawing_pdf(
                b"/X5 Do",
                stream(b"/X5 Do", b"/Subtype/Form/Resources<</XObject<</X5 5 0 R>>>>"),
            ),
            id="a form that draws itself",
        ),
        pytest.param(
            drawing_pdf(
                b"612 0 0 792 0 0 cm /X5 Do",
                stream(
                    zlib.compress(bytes(1_000)),
                    b"/Subtype/Image/Width 200000/Height 200000/BitsPerComponent 8"
                    b"/ColorSpace/DeviceRGB/Filter/FlateDecode",
                ),
            ),
            id="a huge image",
        ),
    ],
)
async def test_a_document_made_to_do_harm_is_shown_or_refused(data: bytes) -> None:
    try:
        document = await pages(data)
    except ToolInputError:
        return
    assert len(document.pages) == 1


async def test_a_document_that_takes_all_memory_ends_its_decoder_only() -> None:
    data = bomb_pdf()
    assert len(data) < 10_000
    with pytest.raises(ToolInputError, match="cannot be decoded"):
        await pages(data)
