"""Detects the encoding of a page like browsers: labels have their WHATWG meaning, not Python's."""

from __future__ import annotations

import codecs
import re

_LOOK = 4_096
"""Bytes at the start of a document in which its encoding is declared."""
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_DECLARED = (
    rb"(?is)<meta[^>]{0,400}?charset\s{0,9}=\s{0,9}[\"']?\s{0,9}([a-z0-9_:.-]{1,40})",
    rb"(?is)\A\s{0,99}<\?xml[^>]{0,200}?encoding\s{0,9}=\s{0,9}[\"']([a-z0-9_:.-]{1,40})",
)
# Codecs of Python and their labels; every codec name is a label as well.
_LABELS = {
    "utf-8": "utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "cp1252": """ansi_x3.4-1968 ascii us-ascii iso646-us cp819 ibm819 latin1 latin-1 l1 csisolatin1
        iso-8859-1 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 iso-ir-100 windows-1252
        x-cp1252""",
    "cp1250": "windows-1250 x-cp1250",
    "cp1251": "windows-1251 x-cp1251",
    "cp1253": "windows-1253 x-cp1253",
    "cp1254": """windows-1254 x-cp1254 iso-8859-9 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989
        latin5 l5 csisolatin5 iso-ir-148""",
    "cp1255": "windows-1255 x-cp1255",
    "cp1256": "windows-1256 x-cp1256",
    "cp1257": "windows-1257 x-cp1257",
    "cp1258": "windows-1258 x-cp1258",
    "cp874": "windows-874 dos-874 iso-8859-11 iso8859-11 iso885911 tis-620",
    "cp866": "866 ibm866 csibm866",
    "iso8859-2": "iso-8859-2 iso_8859-2 latin2 l2 csisolatin2",
    "iso8859-3": "iso-8859-3 iso_8859-3 latin3 l3",
    "iso8859-4": "iso-8859-4 iso_8859-4 latin4 l4",
    "iso8859-5": "iso-8859-5 iso_8859-5 cyrillic csisolatincyrillic",
    "iso8859-6": "iso-8859-6 iso_8859-6 arabic iso-8859-6-e iso-8859-6-i asmo-708 ecma-114",
    "iso8859-7": "iso-8859-7 iso_8859-7 greek greek8 elot_928 ecma-118 sun_eu_greek",
    "iso8859-8": "iso-8859-8 iso_8859-8 hebrew visual iso-8859-8-e iso-8859-8-i logical",
    "iso8859-10": "iso-8859-10 latin6 l6",
    "iso8859-13": "iso-8859-13",
    "iso8859-14": "iso-8859-14",
    "iso8859-15": "iso-8859-15 iso_8859-15 l9 csisolatin9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "koi koi8 koi8_r cskoi8r",
    "koi8-u": "koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman csmacintosh",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gbk gb2312 gb_2312 gb_2312-80 x-gbk chinese csgb2312 iso-ir-58 csiso58gb231280",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5",
    "euc-jp": "x-euc-jp cseucpkdfmtjapanese",
    "iso-2022-jp": "csiso2022jp",
    "cp932": "shift_jis shift-jis sjis x-sjis ms932 ms_kanji windows-31j csshiftjis",
    "cp949": """euc-kr cseuckr csksc56011987 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601
        iso-ir-149 windows-949""",
    "utf-16-le": "utf-16 utf-16le ucs-2 unicode iso-10646-ucs-2 csunicode unicodefeff",
    "utf-16-be": "utf-16be unicodefffe",
}
_CODECS = {label: codec for codec, labels in _LABELS.items() for label in (codec, *labels.split())}


def decode(body: bytes, content_type: str, *, is_cut: bool = False) -> str:
    """The text of a body with this `Content-Type`; with `is_cut`, an incomplete character at its
    end is left out. Invalid bytes become U+FFFD."""
    for mark, codec in _MARKS:
        if body.startswith(mark):
            return _decode(body[len(mark) :], codec, is_cut)
    if codec := _codec_in(content_type) or _declared(body[:_LOOK]):
        return _decode(body, codec, is_cut)
    try:
        return codecs.getincrementaldecoder("utf-8")("strict").decode(body, final=not is_cut)
    except UnicodeDecodeError:
        return _decode(body, "cp1252", is_cut)


def _decode(body: bytes, codec: str, is_cut: bool) -> str:
    return codecs.getincrementaldecoder(codec)("replace").decode(body, final=not is_cut)


def _codec_in(content_type: str) -> str:
    found = re.search(r"(?i);\s*+charset\s*+=[\s\"']*+([^\s\"';,]{1,40})", content_type)
    return _CODECS.get(found[1].lower(), "") if found else ""


def _declared(head: bytes) -> str:
    for pattern in _DECLARED:
        if found := re.search(pattern, head):
            codec = _CODECS.get(found[1].decode("ascii").lower(), "")
            # The declaration could not be read if it were true.
            return "utf-8" if codec.startswith("utf-16") else codec
    return ""
