"""Named, append-only migrations: what has been released is never edited, only followed by another."""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from swarm_core.store.schema import VERSION

migrations = Migrations("swarm")


def apply(connection: sqlite3.Connection) -> None:
    """Bring the schema up to VERSION in one transaction; two processes at once are safe."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        migrations.apply(Database(connection))
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def names() -> list[str]:
    return [m.name for m in migrations.pending(Database(memory=True))]


@migrations(name="0001_core")
def _core(db: Database) -> None:
    for statement in _CORE:
        db.execute(statement)


@migrations(name="0002_coordination")
def _coordination(db: Database) -> None:
    for statement in _COORDINATION:
        db.execute(statement)


@migrations(name="0003_messages")
def _messages(db: Database) -> None:
    for statement in _MESSAGES:
        db.execute(statement)


@migrations(name="0004_pulls")
def _pulls(db: Database) -> None:
    for statement in _PULLS:
        db.execute(statement)


@migrations(name="0005_dashboard")
def _dashboard(db: Database) -> None:
    for statement in _DASHBOARD:
        db.execute(statement)


@migrations(name="0006_kept")
def _kept(db: Database) -> None:
    db.execute("ALTER TABLE instances ADD COLUMN kept TEXT NOT NULL DEFAULT ''")


@migrations(name="0007_readiness")
def _readiness(db: Database) -> None:
    for statement in _READINESS:
        db.execute(statement)


@migrations(name="0008_retention")
def _retention(db: Database) -> None:
    for statement in _RETENTION:
        db.execute(statement)


@migrations(name="0009_brought")
def _brought(db: Database) -> None:
    for statement in _BROUGHT:
        db.execute(statement)


@migrations(name="0010_unrelated")
def _unrelated(db: Database) -> None:
    db.execute("ALTER TABLE pulls ADD COLUMN unrelated INTEGER NOT NULL DEFAULT 0")


_CORE = (
    """CREATE TABLE hosts (
        name TEXT PRIMARY KEY,
        state TEXT NOT NULL CHECK (state IN ('up', 'lost')),
        seen_at TEXT NOT NULL
    )""",
    """CREATE TABLE instances (
        id TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('work', 'review', 'fork', 'adhoc')),
        status TEXT NOT NULL CHECK (status IN ('starting', 'running', 'waiting_review', 'changes_requested',
            'approved', 'pr_created', 'pr_merged', 'pr_closed', 'failed', 'terminated')),
        wanted TEXT NOT NULL CHECK (wanted IN ('running', 'stopped', 'removed')),
        host TEXT NOT NULL REFERENCES hosts(name),
        epoch INTEGER NOT NULL DEFAULT 1,
        repo_path TEXT NOT NULL,
        worktree_path TEXT NOT NULL,
        branch TEXT NOT NULL,
        base_branch TEXT NOT NULL,
        base_commit TEXT,
        tmux_session TEXT NOT NULL,
        agent TEXT NOT NULL,
        conversation_id TEXT NOT NULL,
        agent_number INTEGER NOT NULL,
        activity TEXT NOT NULL CHECK (activity IN ('starting', 'busy', 'idle', 'blocked', 'exited', 'unknown')),
        activity_source TEXT NOT NULL CHECK (activity_source IN ('hook', 'file', 'process', 'pane')),
        activity_at TEXT NOT NULL,
        activity_detail TEXT NOT NULL DEFAULT '',
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        name TEXT,
        issue_number INTEGER,
        issue_title TEXT,
        prompt TEXT NOT NULL DEFAULT '',
        parent_id TEXT REFERENCES instances(id),
        head_commit TEXT,
        pid INTEGER,
        pr_number INTEGER,
        pr_url TEXT,
        exit_code INTEGER,
        exit_signal INTEGER,
        last_screen TEXT NOT NULL DEFAULT '',
        reason TEXT NOT NULL DEFAULT '',
        problem TEXT NOT NULL DEFAULT '',
        files_changed INTEGER NOT NULL DEFAULT 0,
        lines_added INTEGER NOT NULL DEFAULT 0,
        lines_deleted INTEGER NOT NULL DEFAULT 0,
        changes_at TEXT,
        started_at TEXT,
        terminated_at TEXT,
        cleaned_at TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX instances_open ON instances(created_at) WHERE cleaned_at IS NULL",
    "CREATE INDEX instances_issue ON instances(kind, issue_number)",
    """CREATE TABLE relationships (
        id INTEGER PRIMARY KEY,
        parent_id TEXT NOT NULL REFERENCES instances(id),
        child_id TEXT NOT NULL REFERENCES instances(id),
        type TEXT NOT NULL CHECK (type IN ('spawned_review', 'created_fork')),
        round INTEGER NOT NULL DEFAULT 1,
        head_commit TEXT,
        created_at TEXT NOT NULL,
        UNIQUE (parent_id, child_id, type)
    )""",
    "CREATE INDEX relationships_child ON relationships(child_id)",
    """CREATE TABLE mcp_events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at TEXT NOT NULL,
        instance_id TEXT,
        actor TEXT NOT NULL,
        tool_name TEXT,
        name TEXT NOT NULL,
        success INTEGER NOT NULL DEFAULT 1,
        error_code TEXT,
        error_message TEXT,
        duration_ms REAL,
        status_from TEXT,
        status_to TEXT,
        metadata TEXT NOT NULL DEFAULT '{}'
    )""",
    "CREATE INDEX mcp_events_instance ON mcp_events(instance_id, id)",
    """CREATE TABLE actions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        kind TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'done', 'undone')),
        actor TEXT NOT NULL,
        steps_done TEXT NOT NULL DEFAULT '[]',
        details TEXT NOT NULL DEFAULT '{}',
        started_at TEXT NOT NULL,
        finished_at TEXT,
        error_code TEXT,
        error_message TEXT
    )""",
    "CREATE UNIQUE INDEX actions_open ON actions(instance_id) WHERE state = 'open'",
    """CREATE TABLE tokens (
        hash TEXT PRIMARY KEY,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        epoch INTEGER NOT NULL,
        created_at TEXT NOT NULL,
        revoked_at TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX tokens_instance ON tokens(instance_id, epoch)",
    """CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        sender TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN
            ('accepted', 'injected', 'seen', 'acknowledged', 'held', 'expired', 'failed')),
        body TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT
    )""",
    "CREATE INDEX messages_instance ON messages(instance_id, seq)",
    """CREATE TABLE preserved (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        repo_path TEXT NOT NULL,
        ref TEXT NOT NULL UNIQUE,
        "commit" TEXT NOT NULL,
        files INTEGER NOT NULL,
        bytes INTEGER NOT NULL,
        why TEXT NOT NULL,
        created_at TEXT NOT NULL,
        restored_at TEXT
    )""",
    "CREATE INDEX preserved_instance ON preserved(instance_id, id)",
)

_COORDINATION = (
    # Without AUTOINCREMENT: events are never deleted, and noting the last id elsewhere costs a page for each.
    """CREATE TABLE events_kept (
        id INTEGER PRIMARY KEY,
        at TEXT NOT NULL,
        instance_id TEXT,
        actor TEXT NOT NULL,
        tool_name TEXT,
        name TEXT NOT NULL,
        success INTEGER NOT NULL DEFAULT 1,
        error_code TEXT,
        error_message TEXT,
        duration_ms REAL,
        status_from TEXT,
        status_to TEXT,
        metadata TEXT NOT NULL DEFAULT '{}'
    )""",
    "INSERT INTO events_kept SELECT * FROM mcp_events",
    "DROP TABLE mcp_events",
    "ALTER TABLE events_kept RENAME TO mcp_events",
    "CREATE INDEX mcp_events_instance ON mcp_events(instance_id, id)",
    """CREATE TABLE principals_tokens (
        hash TEXT PRIMARY KEY,
        kind TEXT NOT NULL CHECK (kind IN ('instance', 'operator', 'automation')),
        name TEXT NOT NULL,
        epoch INTEGER,
        scopes TEXT NOT NULL DEFAULT '[]',
        created_at TEXT NOT NULL,
        revoked_at TEXT
    ) WITHOUT ROWID""",
    """INSERT INTO principals_tokens (hash, kind, name, epoch, created_at, revoked_at)
        SELECT hash, 'instance', instance_id, epoch, created_at, revoked_at FROM tokens""",
    "DROP TABLE tokens",
    "ALTER TABLE principals_tokens RENAME TO tokens",
    "CREATE INDEX tokens_principal ON tokens(kind, name)",
    "ALTER TABLE relationships ADD COLUMN verdict TEXT CHECK (verdict IN ('needs_work', 'approved', 'none'))",
    "ALTER TABLE relationships ADD COLUMN verdict_at TEXT",
    """CREATE TABLE feedback (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        sender TEXT NOT NULL,
        to_instance TEXT NOT NULL REFERENCES instances(id),
        relationship_id INTEGER REFERENCES relationships(id),
        feedback_type TEXT NOT NULL CHECK (feedback_type IN ('needs_work', 'suggestions', 'clarification')),
        priority TEXT NOT NULL CHECK (priority IN ('low', 'medium', 'high')),
        body TEXT NOT NULL,
        file_path TEXT NOT NULL,
        message_id TEXT NOT NULL REFERENCES messages(id),
        reviewed_commit TEXT,
        head_commit TEXT,
        created_at TEXT NOT NULL
    )""",
    "CREATE INDEX feedback_to ON feedback(to_instance, seq)",
    """CREATE TABLE pulls (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        forge TEXT NOT NULL,
        repo_path TEXT NOT NULL,
        number INTEGER NOT NULL,
        url TEXT NOT NULL,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        opened_by TEXT NOT NULL,
        head_branch TEXT NOT NULL,
        base_branch TEXT NOT NULL,
        head_commit TEXT NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'merged', 'closed')),
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        UNIQUE (forge, repo_path, number)
    )""",
    "CREATE UNIQUE INDEX pulls_open ON pulls(repo_path, head_branch) WHERE state = 'open'",
    "CREATE INDEX pulls_instance ON pulls(instance_id)",
    """CREATE TABLE requests (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        principal TEXT NOT NULL,
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,
        key TEXT,
        server TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'done', 'failed', 'interrupted', 'replayed')),
        instance_id TEXT,
        result TEXT,
        started_at TEXT NOT NULL,
        finished_at TEXT
    )""",
    "CREATE UNIQUE INDEX requests_key ON requests(principal, key) WHERE key IS NOT NULL",
    "CREATE INDEX requests_digest ON requests(principal, tool, digest, id)",
    "CREATE INDEX requests_open ON requests(server) WHERE state = 'open'",
    "CREATE INDEX requests_started ON requests(started_at)",
    """CREATE TABLE search_cursor (
        kind TEXT PRIMARY KEY CHECK (kind IN ('event', 'feedback', 'message')),
        indexed INTEGER NOT NULL DEFAULT 0
    ) WITHOUT ROWID""",
    "INSERT INTO search_cursor (kind) VALUES ('event'), ('feedback'), ('message')",
    """CREATE VIRTUAL TABLE search USING fts5(
        title, body, kind UNINDEXED, ref UNINDEXED, instance_id UNINDEXED, at UNINDEXED,
        tokenize = "unicode61 remove_diacritics 2 tokenchars '_'", prefix = '2 3'
    )""",
)

_MESSAGES = (
    """CREATE TABLE messages_kept (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        sender TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN
            ('accepted', 'injected', 'seen', 'acknowledged', 'held', 'expired', 'failed')),
        body TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0,
        error TEXT NOT NULL DEFAULT '',
        kind TEXT NOT NULL DEFAULT 'message' CHECK (kind IN ('message', 'feedback', 'review', 'notice')),
        document TEXT,
        next_at TEXT,
        injected_at TEXT,
        seen_at TEXT,
        acknowledged_at TEXT,
        expires_at TEXT,
        how TEXT NOT NULL DEFAULT ''
    )""",
    """INSERT INTO messages_kept
            (seq, id, instance_id, sender, state, body, created_at, updated_at, attempts, error)
        SELECT seq, id, instance_id, sender, state, body, created_at, updated_at, attempts, coalesce(error, '')
        FROM messages""",
    "DROP TABLE messages",
    "ALTER TABLE messages_kept RENAME TO messages",
    "CREATE INDEX messages_instance ON messages(instance_id, seq)",
    "CREATE INDEX messages_seen ON messages(instance_id) WHERE state = 'seen'",
    "CREATE INDEX mcp_events_marks ON mcp_events(instance_id, name, id)"
    " WHERE name IN ('mcp:connected', 'mcp:reconnect', 'work:rescoped')",
    """CREATE INDEX messages_undelivered ON messages(instance_id, seq)
        WHERE state IN ('accepted', 'held', 'injected')""",
    """CREATE TABLE usage (
        instance_id TEXT NOT NULL REFERENCES instances(id),
        message_id TEXT NOT NULL,
        model TEXT NOT NULL DEFAULT '',
        input_tokens INTEGER NOT NULL DEFAULT 0,
        output_tokens INTEGER NOT NULL DEFAULT 0,
        cache_read_tokens INTEGER NOT NULL DEFAULT 0,
        cache_write_tokens INTEGER NOT NULL DEFAULT 0,
        cost_usd REAL NOT NULL DEFAULT 0,
        at TEXT NOT NULL,
        PRIMARY KEY (instance_id, message_id)
    )""",
    "CREATE INDEX relationships_open ON relationships(created_at) WHERE verdict IS NULL",
    """CREATE TABLE notices (
        id INTEGER PRIMARY KEY,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        reason TEXT NOT NULL,
        text TEXT NOT NULL,
        raised_at TEXT NOT NULL,
        sent_at TEXT,
        over_at TEXT
    )""",
    "CREATE UNIQUE INDEX notices_open ON notices(instance_id, reason) WHERE over_at IS NULL",
    "ALTER TABLE instances ADD COLUMN needs_person TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE instances ADD COLUMN blocked_on TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE instances ADD COLUMN budget_usd REAL",
    "ALTER TABLE instances ADD COLUMN budget_state TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE instances ADD COLUMN cost_usd REAL NOT NULL DEFAULT 0",
    "ALTER TABLE instances ADD COLUMN tokens_used INTEGER NOT NULL DEFAULT 0",
    # The mark of used review rounds has shared its column with what reconciling finds.
    """UPDATE instances SET needs_person = problem, problem = ''
        WHERE problem GLOB 'all review rounds are used*'""",
)

_PULLS = (
    # A remote may come to lead to another repository, whose pull requests have the same numbers.
    """CREATE TABLE pulls_kept (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        forge TEXT NOT NULL,
        repo_path TEXT NOT NULL,
        number INTEGER NOT NULL,
        url TEXT NOT NULL,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        opened_by TEXT NOT NULL,
        head_branch TEXT NOT NULL,
        base_branch TEXT NOT NULL,
        head_commit TEXT NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'merged', 'closed')),
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        repository TEXT NOT NULL DEFAULT '',
        draft INTEGER NOT NULL DEFAULT 0,
        pushed_commit TEXT,
        head_at TEXT,
        mergeable INTEGER,
        merge_commit TEXT,
        forge_updated_at TEXT NOT NULL DEFAULT '',
        etags TEXT NOT NULL DEFAULT '{}',
        looked_at TEXT,
        next_at TEXT,
        failures INTEGER NOT NULL DEFAULT 0,
        failure TEXT NOT NULL DEFAULT '',
        auto_merge TEXT NOT NULL DEFAULT '',
        auto_commit TEXT,
        closed_at TEXT,
        UNIQUE (forge, repo_path, repository, number)
    )""",
    """INSERT INTO pulls_kept (id, forge, repo_path, number, url, instance_id, opened_by, head_branch, base_branch,
            head_commit, title, body, state, created_at, updated_at)
        SELECT id, forge, repo_path, number, url, instance_id, opened_by, head_branch, base_branch,
            head_commit, title, body, state, created_at, updated_at
        FROM pulls""",
    "DROP TABLE pulls",
    "ALTER TABLE pulls_kept RENAME TO pulls",
    "CREATE UNIQUE INDEX pulls_open ON pulls(repo_path, head_branch) WHERE state = 'open'",
    "CREATE INDEX pulls_instance ON pulls(instance_id)",
    "CREATE INDEX pulls_branch ON pulls(repo_path, head_branch, id)",
    "CREATE INDEX pulls_merged ON pulls(merge_commit) WHERE merge_commit IS NOT NULL",
    "CREATE INDEX pulls_followed ON pulls(next_at) WHERE state = 'open'",
    """CREATE TABLE pull_checks (
        pull_id INTEGER NOT NULL REFERENCES pulls(id),
        id TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('pending', 'passed', 'failed', 'skipped')),
        url TEXT NOT NULL,
        summary TEXT NOT NULL,
        job INTEGER,
        fault INTEGER NOT NULL DEFAULT 1,
        PRIMARY KEY (pull_id, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE pull_reviews (
        pull_id INTEGER NOT NULL REFERENCES pulls(id),
        id TEXT NOT NULL,
        author TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('approved', 'changes_requested', 'commented', 'dismissed')),
        body TEXT NOT NULL,
        "commit" TEXT NOT NULL,
        at TEXT NOT NULL,
        url TEXT NOT NULL,
        trusted INTEGER NOT NULL,
        PRIMARY KEY (pull_id, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE pull_comments (
        pull_id INTEGER NOT NULL REFERENCES pulls(id),
        id TEXT NOT NULL,
        author TEXT NOT NULL,
        body TEXT NOT NULL,
        at TEXT NOT NULL,
        url TEXT NOT NULL,
        path TEXT NOT NULL,
        line INTEGER,
        outdated INTEGER NOT NULL,
        trusted INTEGER NOT NULL,
        PRIMARY KEY (pull_id, id)
    ) WITHOUT ROWID""",
    """CREATE TABLE pull_news (
        pull_id INTEGER NOT NULL REFERENCES pulls(id),
        key TEXT NOT NULL,
        message_id TEXT REFERENCES messages(id),
        since TEXT NOT NULL,
        PRIMARY KEY (pull_id, key)
    ) WITHOUT ROWID""",
    """CREATE TABLE forge_quota (
        host TEXT NOT NULL,
        account TEXT NOT NULL DEFAULT '',
        resource TEXT NOT NULL,
        quota INTEGER,
        remaining INTEGER,
        reset_at TEXT,
        blocked_until TEXT,
        window_at TEXT NOT NULL,
        spent INTEGER NOT NULL DEFAULT 0,
        seen_at TEXT NOT NULL,
        PRIMARY KEY (host, account, resource)
    ) WITHOUT ROWID""",
    """CREATE TABLE forge_issues (
        host TEXT NOT NULL,
        owner TEXT NOT NULL,
        name TEXT NOT NULL,
        number INTEGER NOT NULL,
        title TEXT NOT NULL,
        body TEXT NOT NULL,
        url TEXT NOT NULL,
        state TEXT NOT NULL,
        labels TEXT NOT NULL,
        assignees TEXT NOT NULL,
        updated_at TEXT NOT NULL,
        synced_at TEXT NOT NULL,
        PRIMARY KEY (host, owner, name, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE webhook_deliveries (
        id TEXT PRIMARY KEY,
        at TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX webhook_deliveries_at ON webhook_deliveries(at)",
    """CREATE TABLE merge_queue (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        pull_id INTEGER NOT NULL REFERENCES pulls(id),
        instance_id TEXT NOT NULL REFERENCES instances(id),
        repo_path TEXT NOT NULL,
        base_branch TEXT NOT NULL,
        head_commit TEXT NOT NULL,
        method TEXT NOT NULL CHECK (method IN ('merge', 'squash', 'rebase')),
        state TEXT NOT NULL CHECK (state IN ('waiting', 'merging', 'merged', 'left')),
        detail TEXT NOT NULL DEFAULT '',
        asked_by TEXT NOT NULL,
        created_at TEXT NOT NULL,
        updated_at TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX merge_queue_open ON merge_queue(pull_id) WHERE state IN ('waiting', 'merging')",
    """CREATE TABLE checked_commits (
        repo_path TEXT NOT NULL,
        "commit" TEXT NOT NULL,
        command TEXT NOT NULL,
        ok INTEGER NOT NULL,
        output TEXT NOT NULL,
        seconds REAL NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (repo_path, "commit", command)
    ) WITHOUT ROWID""",
    """CREATE TABLE overlaps (
        one TEXT NOT NULL REFERENCES instances(id),
        other TEXT NOT NULL REFERENCES instances(id),
        files TEXT NOT NULL,
        conflicts TEXT NOT NULL,
        seen_at TEXT NOT NULL,
        told_at TEXT,
        PRIMARY KEY (one, other)
    ) WITHOUT ROWID""",
    "CREATE INDEX overlaps_other ON overlaps(other)",
    """CREATE TABLE checkouts (
        repo_path TEXT PRIMARY KEY,
        facts TEXT NOT NULL,
        seen_at TEXT NOT NULL
    ) WITHOUT ROWID""",
    "ALTER TABLE instances ADD COLUMN attempt_group TEXT",
    "CREATE INDEX instances_attempts ON instances(attempt_group) WHERE attempt_group IS NOT NULL",
)

_DASHBOARD = (
    """CREATE TABLE links (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        may_write INTEGER NOT NULL,
        name TEXT NOT NULL DEFAULT '',
        reusable INTEGER NOT NULL,
        created_at TEXT NOT NULL,
        expires_at TEXT NOT NULL,
        used_at TEXT,
        ended_at TEXT
    ) WITHOUT ROWID""",
    """CREATE TABLE visits (
        id TEXT PRIMARY KEY,
        hash TEXT NOT NULL UNIQUE,
        link_id TEXT NOT NULL REFERENCES links(id),
        port INTEGER NOT NULL,
        may_write INTEGER NOT NULL,
        name TEXT NOT NULL DEFAULT '',
        created_at TEXT NOT NULL,
        seen_at TEXT NOT NULL,
        expires_at TEXT,
        ended_at TEXT
    ) WITHOUT ROWID""",
    "CREATE INDEX visits_link ON visits(link_id)",
    """CREATE TABLE dismissed (
        instance_id TEXT NOT NULL REFERENCES instances(id),
        key TEXT NOT NULL,
        by TEXT NOT NULL,
        at TEXT NOT NULL,
        PRIMARY KEY (instance_id, key)
    ) WITHOUT ROWID""",
    # Tool calls are most of all events; whoever asks for them finds them without an index.
    "CREATE INDEX mcp_events_name ON mcp_events(name, id) WHERE name <> 'tool:called'",
    "CREATE INDEX mcp_events_failed ON mcp_events(id) WHERE success = 0",
)

_READINESS = (
    """CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        instance_id TEXT NOT NULL REFERENCES instances(id),
        "commit" TEXT NOT NULL,
        verdict TEXT NOT NULL CHECK (verdict IN ('approved', 'needs_work')),
        by TEXT NOT NULL,
        at TEXT NOT NULL
    )""",
    "CREATE INDEX verdicts_instance ON verdicts(instance_id)",
    'CREATE INDEX verdicts_commit ON verdicts("commit")',
    """INSERT INTO verdicts (instance_id, "commit", verdict, by, at)
        SELECT instance_id, "commit", verdict, by, at FROM (
            SELECT parent_id AS instance_id, head_commit AS "commit", verdict, child_id AS by,
                coalesce(verdict_at, created_at) AS at
            FROM relationships WHERE type = 'spawned_review' AND verdict IN ('approved', 'needs_work')
            UNION ALL
            SELECT instance_id, json_extract(metadata, '$.commit'), 'approved', actor, at
            FROM mcp_events WHERE name = 'work:accepted' AND success AND json_valid(metadata)
            UNION ALL
            SELECT to_instance, head_commit, 'needs_work', sender, created_at
            FROM feedback WHERE feedback_type = 'needs_work' AND relationship_id IS NULL
        ) WHERE "commit" IS NOT NULL AND instance_id IN (SELECT id FROM instances) ORDER BY at""",
    """CREATE TABLE check_runs (
        pull_id INTEGER PRIMARY KEY REFERENCES pulls(id) ON DELETE CASCADE,
        head_commit TEXT NOT NULL,
        base_commit TEXT NOT NULL,
        command TEXT NOT NULL,
        ok INTEGER NOT NULL,
        output TEXT NOT NULL,
        at TEXT NOT NULL
    )""",
    "ALTER TABLE pulls ADD COLUMN replaced TEXT NOT NULL DEFAULT ''",
)

_RETENTION = (
    # Without them, deleting a message looks at every row that could refer to it.
    "CREATE INDEX feedback_message ON feedback(message_id)",
    "CREATE INDEX pull_news_message ON pull_news(message_id) WHERE message_id IS NOT NULL",
)

_BROUGHT = (
    """CREATE TABLE pull_commits (
        pull_id INTEGER NOT NULL REFERENCES pulls(id) ON DELETE CASCADE,
        "commit" TEXT NOT NULL,
        parents TEXT NOT NULL,
        PRIMARY KEY (pull_id, "commit")
    ) WITHOUT ROWID""",
    'CREATE INDEX pull_commits_commit ON pull_commits("commit")',
    "ALTER TABLE pulls ADD COLUMN span TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE checked_commits ADD COLUMN tree TEXT NOT NULL DEFAULT ''",
)
