"""Schema of the session database, as a list of migrations."""

from __future__ import annotations

APPLICATION = 0x636C6173
_COLUMNS = """
        key TEXT NOT NULL UNIQUE,
        agent TEXT NOT NULL,
        name TEXT NOT NULL,
        title TEXT NOT NULL DEFAULT '',
        workspace BLOB NOT NULL,
        model TEXT NOT NULL,
        model_override TEXT NOT NULL DEFAULT '',
        thinking TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        updated_ms INTEGER NOT NULL,
        turns INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0,
        output INTEGER NOT NULL DEFAULT 0,
        cache_read INTEGER NOT NULL DEFAULT 0,
        cache_write INTEGER NOT NULL DEFAULT 0,
        cost REAL NOT NULL DEFAULT 0,
        context_tokens INTEGER NOT NULL DEFAULT 0,
        parent TEXT NOT NULL,
        version INTEGER NOT NULL DEFAULT 0,
        state BLOB NOT NULL DEFAULT x'7b7d',
        last INTEGER NOT NULL DEFAULT 0,
        -- The message that replaces all earlier ones except those from keep_from on.
        summary INTEGER NOT NULL DEFAULT 0,
        keep_from INTEGER NOT NULL DEFAULT 0
"""
MIGRATIONS = (
    f"""
    CREATE TABLE session (
        id TEXT PRIMARY KEY,
        {_COLUMNS}
    ) STRICT;
    CREATE INDEX session_by_name ON session (name);
    CREATE INDEX session_by_use ON session (updated_ms);
    CREATE TABLE message (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (session, number)
    ) STRICT;
    CREATE TABLE change (
        session TEXT NOT NULL,
        number INTEGER NOT NULL,
        type TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        details BLOB NOT NULL,
        PRIMARY KEY (session, number)
    ) STRICT, WITHOUT ROWID;
    """,
    # One B-tree for the messages, in reading order, and no index of the last use: an append writes
    # two pages instead of four. `row` is explicit because implicit rowids can change.
    f"""
    ALTER TABLE session RENAME TO old_session;
    CREATE TABLE session (
        row INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        {_COLUMNS}
    ) STRICT;
    INSERT INTO session SELECT rowid, * FROM old_session;
    ALTER TABLE message RENAME TO old_message;
    CREATE TABLE message (
        -- The session's row << 32, plus the number of the message.
        place INTEGER PRIMARY KEY,
        body BLOB NOT NULL
    ) STRICT;
    INSERT INTO message SELECT (row << 32) + number, body
        FROM old_message JOIN session ON id = session ORDER BY 1;
    DROP TABLE old_message;
    DROP TABLE old_session;
    CREATE INDEX session_by_name ON session (name);
    """,  # noqa: S608
    """
    ALTER TABLE session ADD COLUMN label TEXT NOT NULL DEFAULT '';
    ALTER TABLE session ADD COLUMN archived_ms INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX session_by_parent ON session (parent);
    CREATE VIRTUAL TABLE words USING fts5(text, content='', contentless_delete=1);
    CREATE TABLE searched (
        -- Per session: the number up to which its messages are in the index.
        row INTEGER PRIMARY KEY,
        number INTEGER NOT NULL
    ) STRICT;
    """,
    """
    CREATE TABLE run (
        id TEXT PRIMARY KEY,
        -- The session it works in, the one that receives its result, and the root session.
        session TEXT NOT NULL,
        requester TEXT NOT NULL,
        root TEXT NOT NULL,
        name TEXT NOT NULL,
        label TEXT NOT NULL,
        task TEXT NOT NULL,
        status TEXT NOT NULL,
        created_ms INTEGER NOT NULL,
        started_ms INTEGER NOT NULL DEFAULT 0,
        ended_ms INTEGER NOT NULL DEFAULT 0,
        timeout_s REAL NOT NULL,
        cleanup TEXT NOT NULL,
        text TEXT NOT NULL DEFAULT '',
        error TEXT NOT NULL DEFAULT '',
        output BLOB NOT NULL DEFAULT x'',
        usage TEXT NOT NULL DEFAULT '{}',
        -- When the result was added to the requester's transcript; 0 if it was not yet.
        told_ms INTEGER NOT NULL DEFAULT 0,
        -- Directory of attachments to remove when it ends.
        attachments TEXT NOT NULL DEFAULT '',
        -- The worktree it works in, as JSON, and what it changed there.
        worktree TEXT NOT NULL DEFAULT '',
        changes TEXT NOT NULL DEFAULT ''
    ) STRICT;
    CREATE INDEX run_by_requester ON run (requester);
    CREATE INDEX run_by_session ON run (session);
    CREATE INDEX run_by_root ON run (root);
    CREATE TABLE mailbox (
        id TEXT PRIMARY KEY,
        -- The id of the recipient; the sender is a key.
        session TEXT NOT NULL,
        sender TEXT NOT NULL,
        channel TEXT NOT NULL,
        text TEXT NOT NULL,
        chain TEXT NOT NULL,
        sandboxed INTEGER NOT NULL,
        wakes INTEGER NOT NULL,
        sent_ms INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX mailbox_by_session ON mailbox (session);
    """,
)
