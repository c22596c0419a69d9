"""The tables of jobs and their runs."""

SCHEMA = """
CREATE TABLE job (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    declaration TEXT UNIQUE,
    definition BLOB NOT NULL,
    state BLOB NOT NULL,
    -- The last planned slot: the next one is computed from it, not from the clock.
    planned_ms INTEGER NOT NULL,
    -- When the next slot is due; null if the job is disabled, done, or does not depend on time.
    next_ms INTEGER,
    overlap INTEGER NOT NULL,
    version INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX job_due ON job (next_ms) WHERE next_ms IS NOT NULL;
CREATE INDEX job_planned ON job (planned_ms);
CREATE INDEX job_by_name ON job (name);
CREATE TABLE run (
    row INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    job TEXT NOT NULL,
    -- Null for runs requested by a person or an event.
    slot_ms INTEGER,
    why TEXT NOT NULL,
    status TEXT NOT NULL,
    due_ms INTEGER NOT NULL,
    -- The process that leases it, and whether its work has begun.
    owner TEXT NOT NULL DEFAULT '',
    begun INTEGER NOT NULL DEFAULT 0,
    started_ms INTEGER NOT NULL DEFAULT 0,
    ended_ms INTEGER NOT NULL DEFAULT 0,
    delivery TEXT NOT NULL DEFAULT 'not-requested',
    -- Whether a report or delivery after its end is still pending.
    unsettled INTEGER NOT NULL DEFAULT 0,
    -- For a wake-up: the session and the text.
    session TEXT NOT NULL DEFAULT '',
    text TEXT NOT NULL DEFAULT '',
    record BLOB NOT NULL,
    UNIQUE (job, slot_ms)
) STRICT;
CREATE INDEX run_queued ON run (due_ms, row) WHERE status = 'queued';
CREATE INDEX run_open ON run (job) WHERE status = 'running';
CREATE INDEX run_unsettled ON run (row) WHERE unsettled;
CREATE INDEX run_of_job ON run (job, row);
CREATE INDEX run_ended ON run (ended_ms) WHERE ended_ms > 0;
CREATE TABLE fact (name TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
"""
