"""Hostile and broken notes, queries and indexes; several processes; kills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory.test_service import memory, write_notes
from tests.scale import FULL

from clawkit.config.load import loads
from clawkit.errors import ToolInputError
from clawkit.memory.chunks import MAX_WEIGHT, split_note
from clawkit.memory.files import MAX_FILE_BYTES, NoteFiles
from clawkit.memory.index import RANGES, MemoryIndex
from clawkit.memory.protocols import Corpus
from clawkit.memory.service import LocalMemory
from clawkit.memory.settings import settings_of
from clawkit.memory.words import read_terms
from clawkit.redact import Redactor
from clawkit.text import weigh


@pytest.fixture
def work(tmp_path: Path) -> Path:
    write_notes(tmp_path / "work", {"memory/a.md": "the heron stands still"})
    return tmp_path / "work"


async def test_files_that_are_not_notes_are_problems(tmp_path: Path, work: Path) -> None:
    secret = tmp_path / "secret.md"
    secret.write_text("the heron knows the secret")
    notes = work / "memory"
    (notes / "link.md").symlink_to(secret)
    (notes / "folder").symlink_to(tmp_path)
    (notes / "binary.md").write_bytes(b"heron \0\1\2")
    (notes / "latin.md").write_bytes("héron".encode("latin-1"))
    (notes / "large.md").write_bytes(b"heron " * (MAX_FILE_BYTES // 6 + 1))
    (notes / "marked.md").write_bytes("\ufeffpelican".encode())
    (notes / ".hidden.md").write_text("heron")
    os.mkfifo(notes / "pipe.md")
    (work / "MEMORY.md").symlink_to(secret)
    async with memory(tmp_path, '{extraPaths: ["../nowhere"]}') as service:
        found = await service.search("heron")
        assert [hit.path for hit in found.hits] == ["memory/a.md"]
        assert (await service.search("pelican")).hits[0].path == "memory/marked.md"
        problems = "\n".join((await service.status()).problems)
        for words in ("link.md: is a link", "pipe.md", "binary.md: is a binary", "not UTF-8"):
            assert words in problems
        for words in ("large.md: is larger than", "MEMORY.md: is not a regular", "nowhere"):
            assert words in problems
        for path in ("memory/link.md", "memory/folder/secret.md", "MEMORY.md", "memory/pipe.md"):
            with pytest.raises(ToolInputError, match="not an allowed Markdown memory file"):
                await service.get(path)
    linked = work / "memory" / "second.md"
    os.link(secret, linked)
    with pytest.raises(ToolInputError, match="hard links"):
        NoteFiles(str(work), hard_links=False).read("memory/second.md")


async def test_links_in_a_workspace_lead_to_no_extra_path(tmp_path: Path, work: Path) -> None:
    outside = tmp_path / "private"
    write_notes(outside, {"key.md": "a private heron", "deep/er.md": "a deep heron"})
    (work / "docs").symlink_to(outside)
    (work / "one.md").symlink_to(outside / "key.md")
    own = {"notes/deep/b.md": "a nested heron", "plan.md": "a planned heron"}
    write_notes(work, own)
    extra = '["docs", "one.md", "docs/key.md", "./docs/deep", "notes", "plan.md"]'
    async with memory(tmp_path, f"{{extraPaths: {extra}}}") as service:
        paths = {hit.path for hit in (await service.search("heron")).hits}
        assert paths == {"memory/a.md", *own}
        for path in ("docs/key.md", "one.md", str(outside / "key.md")):
            with pytest.raises(ToolInputError, match="not an allowed Markdown memory file"):
                await service.get(path)
    # What was named outright may be reached by a link, as it is the user's.
    (tmp_path / "link").symlink_to(outside)
    async with memory(tmp_path, '{extraPaths: ["../link", "../work/memory"]}') as service:
        paths = {hit.path for hit in (await service.search("heron")).hits}
        real = {str(outside / "key.md"), str(outside / "deep" / "er.md")}
        assert paths == {"memory/a.md", *real}
        for path in real:
            assert "heron" in (await service.get(path)).text
    # Another name of the workspace is not a way around that.
    (tmp_path / "alias").symlink_to("work")
    (tmp_path / "short").symlink_to("alias/docs")
    (tmp_path / "loop").symlink_to("loop")
    given = ["alias/docs", "alias/one.md", "short", "short/deep", "loop/x", "alias/notes"]
    extra = json.dumps([str(tmp_path / each) for each in given])
    async with memory(tmp_path, f"{{extraPaths: {extra}}}") as service:
        paths = {hit.path for hit in (await service.search("heron")).hits}
        assert paths == {"memory/a.md", "notes/deep/b.md"}
        for path in ("docs/key.md", str(outside / "key.md"), str(tmp_path / "short" / "key.md")):
            with pytest.raises(ToolInputError, match="not an allowed Markdown memory file"):
                await service.get(path)


async def test_names_that_are_not_text_are_left_out(tmp_path: Path, work: Path) -> None:
    for name in (b"\xff.md", b"two\nlines.md"):
        (work / "memory" / os.fsdecode(name)).write_text("heron")
    async with memory(tmp_path) as service:
        assert [hit.path for hit in (await service.search("heron")).hits] == ["memory/a.md"]
        assert sum("rename it" in each for each in (await service.status()).problems) == 2


async def test_what_was_removed_is_not_in_the_index_file(tmp_path: Path, work: Path) -> None:
    file = tmp_path / "home" / "index.sqlite"

    def holds(word: bytes) -> bool:
        return any(word in each.read_bytes().lower() for each in file.parent.iterdir())

    filling = {f"memory/{n}.md": f"filling {n} " + "some words " * 50 for n in range(200)}
    write_notes(work, {**filling, "memory/s.md": "the zebrawort is here", "memory/t.md": "qwortz"})
    async with memory(tmp_path) as service:
        # Another connection keeps the log from being removed.
        other = apsw.Connection(str(file)) if (await service.search("zebrawort")).hits else None
        assert other is not None
        assert other.execute("SELECT count(*) FROM file").get == 203
        assert holds(b"zebrawort")
        assert holds(b"qwortz")
        (work / "memory" / "s.md").unlink()
        (work / "memory" / "t.md").write_text("other")
        await service.index()
        assert not holds(b"zebrawort")
        assert not holds(b"qwortz")
        other.close()
        await service.index(rebuild=True)
        assert len((await service.search("filling", max_results=100)).hits) == 100


async def test_secrets_are_masked_before_a_note_is_cut(tmp_path: Path, work: Path) -> None:
    secret = "hunter2-and-then-some-more"
    redactor = Redactor([secret])
    key = [f"MIIEowIBAAKCAQEA{number:048d}" for number in range(40)]
    pem = ["-----BEGIN RSA PRIVATE KEY-----", *key, "-----END RSA PRIVATE KEY-----"]
    lines = ["heron", *pem, "after the key", "x" * 683 + " heron " + secret + "y" * 3_000]
    (work / "memory" / "a.md").write_text("\n".join(lines))
    made = settings_of(loads("{}").config, "main")
    files = NoteFiles(str(work), redact=redactor.text)
    service = LocalMemory(made, files, str(tmp_path / "home" / "index.sqlite"))
    try:
        for query in ("heron", "MIIEowIBAAKCAQEA", "RSA private key", "after the key"):
            shown = str((await service.search(query, max_results=50)).hits)
            assert "hunter2" not in shown
            assert "MIIE" not in shown
        # Lines keep their numbers.
        assert (await service.get("memory/a.md", start_line=44, lines=1)).text == "after the key"
        assert "MIIE" not in (await service.get("memory/a.md", start_line=20, lines=5)).text
        assert b"hunter2" not in (tmp_path / "home" / "index.sqlite").read_bytes()
    finally:
        await service.close()


async def test_a_new_process_knows_what_cannot_be_read(tmp_path: Path, work: Path) -> None:
    (work / "memory" / "link.md").symlink_to("/etc/hosts")
    (work / "memory" / "binary.md").write_bytes(b"\0")
    async with memory(tmp_path) as service:
        status = await service.status()
        assert (status.files, status.pending) == (0, 2)
        assert "link.md: is a link" in status.problems[0]
        assert not (tmp_path / "home").exists()
        await service.search("heron")
    async with memory(tmp_path) as service:
        problems = "\n".join((await service.status()).problems)
        assert "link.md: is a link" in problems
        assert "binary.md: is a binary" in problems


def test_a_query_with_frequent_words_compares_a_bounded_number(tmp_path: Path) -> None:
    notes = {f"memory/{n}.md": "common frequent usual " * 3 for n in range(12_000)}
    notes["memory/x.md"] = "common rarity"
    index = MemoryIndex(str(tmp_path / "home" / "index.sqlite"))
    write_notes(tmp_path / "work", notes)

    def match(terms: list[str], corpus: Corpus, limit: int) -> list[tuple[int, float]]:
        found = (index.match(group, corpus, limit) for group in index.groups(terms))
        return next(filter(None, found), [])

    try:
        index.sync(NoteFiles(str(tmp_path / "work")), None, stop=threading.Event())
        # The rare word is enough; those in all notes would each be compared 12,000 times.
        asked = ["common", "frequent", "usual", "rarities"]
        assert len(match(asked, "memory", 100)) == 1
        assert len(match(asked[:3], "memory", 100)) == 100
        # A word that no note has is not one that is enough.
        assert len(match(["unheard", *asked[:3]], "memory", 100)) == 100
        assert match(["unheard"], "memory", 100) == []
        # Nor is one that only the other corpus has.
        assert match(["rarities", *asked[:3]], "sessions", 100) == []
        sql = "INSERT INTO words (rowid, body) VALUES (?, 'common heron')"
        session = RANGES["sessions"][0] + 1
        index.run(lambda db: db.execute(sql, (session,)), write=True)
        assert len(match(["heron", *asked[:3]], "memory", 100)) == 100
        assert [id_ for id_, _ in match(asked, "sessions", 100)] == [session]
    finally:
        index.close()


async def test_a_file_that_changes_while_it_is_indexed(tmp_path: Path, work: Path) -> None:
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            (work / "memory" / "a.md").write_text(f"heron {number}\n" * (number % 50 + 1))

    writer = threading.Thread(target=write)
    async with memory(tmp_path) as service:
        writer.start()
        try:
            for _ in range(20):
                await service.search("heron")
        finally:
            stop.set()
            writer.join()
        (work / "memory" / "a.md").write_text("now a kingfisher")
        (hit,) = (await service.search("kingfisher")).hits
        assert hit.snippet == "now a kingfisher"
        assert not (await service.search("heron")).hits


async def test_a_damaged_index_is_built_again(tmp_path: Path, work: Path) -> None:
    file = tmp_path / "home" / "index.sqlite"
    for damage in (b"not a database" * 1_000, b"", None):
        async with memory(tmp_path) as service:
            assert (await service.search("heron")).hits
        data = file.read_bytes()
        if damage is None:
            # Only the pages after the first: it opens, and fails later.
            file.write_bytes(data[:4096] + os.urandom(len(data) - 4096))
        else:
            file.write_bytes(damage)
        async with memory(tmp_path) as service:
            assert (await service.search("heron")).hits, damage
            assert (await service.status()).files == 1
    # It has what the notes said, and nothing that is not in them.
    assert not (tmp_path / "home" / "index.sqlite.damaged").exists()


def test_a_locked_index_is_an_error_that_says_so(tmp_path: Path, work: Path) -> None:
    async def check() -> None:
        async with memory(tmp_path) as service:
            service._index._database._lock_wait_ms = 50
            await service.search("heron")
            service._index.close()
            other = apsw.Connection(str(tmp_path / "home" / "index.sqlite"))
            other.execute("BEGIN IMMEDIATE")
            (work / "memory" / "b.md").write_text("another heron")
            found = await service.search("heron")
            # What is indexed is found all the same.
            assert [hit.path for hit in found.hits] == ["memory/a.md"]
            assert "locked by another process" in found.warning
            other.execute("ROLLBACK")
            other.close()
            assert len((await service.search("heron")).hits) == 2

    asyncio.run(check())


_FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from clawkit.config.load import loads
from clawkit.errors import ToolError
from clawkit.memory.service import open_memory

limits = resource.getrlimit(resource.RLIMIT_FSIZE)

def fill():
    # Enough to open the index for reading, which takes 32 KB.
    resource.setrlimit(resource.RLIMIT_FSIZE, (36_000, limits[1]))

def free():
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)

class Embedder:
    provider, model, texts, fills = "mine", "one", [], True

    async def embed(self, texts, purpose):
        self.texts += texts if purpose == "document" else []
        if self.fills and any("lighthouse" in text for text in texts):
            fill()
        return [[1.0] * 8_000 for _ in texts]

async def search(words):
    found = await memory.search(words)
    await asyncio.sleep(0.2)  # vectors are made in the meantime
    print(*sorted({each.path for each in found.hits}), found.warning, sep="|")

async def main():
    await search("tea")
    (work / "memory/new.md").write_text("The harbour is closed. " * 4_000)
    fill()
    await search("tea")
    try:
        await memory.index()
    except ToolError as error:
        print(error)
    free()
    await search("harbour")
    # It is indexed, and then its vector cannot be stored.
    (work / "memory/dark.md").write_text("The lighthouse is dark.")
    for _ in range(3):
        await search("dark")
    free()
    print(sum("lighthouse" in text for text in embedder.texts), (await memory.status()).embedded)
    embedder.fills = False
    print((await memory.index()).embedded)
    await memory.close()

work = Path(sys.argv[1])
embedder = Embedder()
memory = open_memory(loads("{}"), "main", str(work), plugged=embedder)
asyncio.run(main())
"""


def test_a_full_disk_is_told_and_what_is_indexed_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLAWKIT_HOME", str(tmp_path / "home"))
    write_notes(tmp_path / "work", {"MEMORY.md": "Green tea.", "memory/old.md": "Black tea."})
    argv = [sys.executable, "-c", _FULL_DISK, str(tmp_path / "work")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    first, full, refused, later, *dark, counted, embedded = done.stdout.splitlines()
    assert first == "MEMORY.md|memory/old.md|"
    # What is indexed is found all the same.
    found, _, why = full.rpartition("|")
    assert found == "MEMORY.md|memory/old.md"
    assert why == refused
    assert "the index could not be updated: " in why
    assert "is the disk full? Free some space" in why
    assert "memory/new.md|" in later
    assert ["memory/dark.md" in each for each in dark] == [True] * 3
    # What cannot be stored is not paid for again and again.
    sent, before = map(int, counted.split())
    assert (sent, int(embedded)) == (1, before + 1)
    (index,) = (tmp_path / "home" / "memory").glob("*.sqlite")
    db = apsw.Connection(str(index))
    assert db.execute("PRAGMA integrity_check").get == "ok"
    db.close()


_INDEX = """
import sys, threading
from clawkit.memory.files import NoteFiles
from clawkit.memory.index import MemoryIndex
from clawkit.memory.service import LocalMemory
from clawkit.memory.settings import settings_of
index = MemoryIndex(sys.argv[2])
print("ready", flush=True)
while True:
    index.sync(NoteFiles(sys.argv[1]), None, stop=threading.Event())
    print(index.status().files, flush=True)
    if sys.argv[3] == "once":
        break
    index.clear()
"""


def test_two_processes_index_at_once_and_a_third_is_killed(tmp_path: Path) -> None:
    count = 200
    write_notes(tmp_path / "work", {f"memory/{n}.md": f"heron number {n}" for n in range(count)})
    file = str(tmp_path / "home" / "index.sqlite")

    def start(how: str) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-c", _INDEX, str(tmp_path / "work"), file, how]
        return subprocess.Popen(argv, stdout=subprocess.PIPE)

    others = [start("once"), start("once")]
    with start("again") as killed:
        assert killed.stdout is not None
        for _ in range(3):
            killed.stdout.readline()
        killed.send_signal(signal.SIGKILL)
    for each in others:
        each.communicate(timeout=60)
        assert each.returncode == 0
    index = MemoryIndex(file)
    try:
        index.sync(NoteFiles(str(tmp_path / "work")), None, stop=threading.Event())
        status = index.status()
        assert (status.files, status.chunks) == (count, count)
        assert len(index.match(["heron"], "memory", 1_000)) == count
        index.run(lambda db: db.execute("INSERT INTO words (words) VALUES ('integrity-check')"))
        assert index.run(lambda db: db.execute("PRAGMA integrity_check").get) == "ok"
    finally:
        index.close()


async def test_many_files(tmp_path: Path) -> None:
    count = 100_000 if FULL else 2_000
    for number in range(count):
        folder = tmp_path / "work" / "memory" / str(number % 100)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.md").write_text(f"heron number{number}")
    async with memory(tmp_path) as service:
        seen: list[tuple[int, int]] = []
        status = await service.index(on_progress=lambda done, total: seen.append((done, total)))
        assert (status.files, status.chunks, status.problems) == (count, count, [])
        assert seen[-1] == (count, count)
        (hit,) = (await service.search(f"number{count - 1}")).hits
        assert hit.path == f"memory/{(count - 1) % 100}/{count - 1}.md"
        assert len((await service.search("heron")).hits) == 6


async def test_queries_in_the_language_of_the_index_are_only_words(
    tmp_path: Path, work: Path
) -> None:
    queries = (
        'heron" OR "x',
        "heron AND NOT still",
        "NEAR(heron still, 2)",
        "body:heron*",
        "^heron {a b}: -still + (",
        "'; DROP TABLE file; -- heron",
        "heron\0still",
        "\ud800 heron",
        "heron " * 20_000,
        "word " * 20_000 + "heron",
        "the of and",
        "?!.,",
    )
    async with memory(tmp_path) as service:
        for query in queries:
            found = await service.search(query)
            if query.startswith("heron"):
                assert found.hits, query[:40]
        assert (await service.search("the of and")).hits
        assert (await service.status()).files == 1


async def test_chinese_japanese_and_korean(tmp_path: Path) -> None:
    notes = {
        "memory/zh.md": "服务器的部署密码保存在保险箱里。\n每周五下午三点开会。",
        "memory/ja.md": "歯医者の予約は来週の火曜日です。\nサーバーは東京にあります。",
        "memory/ko.md": "회의는 매주 금요일 오후에 합니다.\n서버 비밀번호는 금고에 있습니다.",
        "memory/de.md": "Der Zahnarzt heißt Müller.",
    }
    write_notes(tmp_path / "work", notes)
    cases = {
        "部署密码在哪里？": "zh",
        "我们什么时候开会": "zh",
        "歯医者はいつですか": "ja",
        "ｻｰﾊﾞｰはどこ": "ja",
        "회의가 언제예요?": "ko",
        "비밀번호": "ko",
        "HEISST mueller oder MÜLLER": "de",
    }
    async with memory(tmp_path) as service:
        for query, name in cases.items():
            hits = (await service.search(query)).hits
            assert hits[0].path == f"memory/{name}.md", query


def test_any_query_can_be_asked(tmp_path: Path) -> None:
    index = MemoryIndex(str(tmp_path / "home" / "index.sqlite"))

    @given(st.text(max_size=300))
    def ask(query: str) -> None:
        for group in index.groups(read_terms(query, index.split)):
            index.match(group, "all", 10)

    try:
        ask()
    finally:
        index.close()


@given(
    st.lists(
        st.one_of(
            st.sampled_from(["# One", "## Two", "```", "", "words and more words " * 20]),
            st.text(max_size=80),
            st.integers(1, 6_000).map(lambda size: "x" * size),
        ),
        max_size=40,
    )
)
def test_passages_hold_every_line_and_are_never_too_long(lines: list[str]) -> None:
    text = "\n".join(lines).replace("\r", "")
    whole = text.split("\n")
    chunks = list(split_note(text))
    seen: set[int] = set()
    for chunk in chunks:
        assert weigh(chunk.text) <= MAX_WEIGHT
        assert 1 <= chunk.start_line <= chunk.end_line <= len(whole)
        seen.update(range(chunk.start_line, chunk.end_line + 1))
        first = whole[chunk.start_line - 1]
        assert chunk.text.split("\n")[0] in first
    assert seen >= {at for at, line in enumerate(whole, 1) if line.strip()}
