-- The index of a vault. Everything here can be rebuilt from the files.

-- The part of the ledger that is indexed: one row. `stamp` identifies the state of the file.
CREATE TABLE covered (
    one     INTEGER PRIMARY KEY CHECK (one = 0),
    bytes   INTEGER NOT NULL,
    lines   INTEGER NOT NULL,
    running BLOB    NOT NULL,
    stamp   TEXT    NOT NULL
) STRICT;

-- One row per event, in the order of the ledger. `day` is that of its id, `told` that of its time. `line_offset` and `line_length` locate its line.
CREATE TABLE event (
    seq         INTEGER PRIMARY KEY,
    id          TEXT    NOT NULL UNIQUE,
    day         TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    told        TEXT    NOT NULL,
    line        INTEGER NOT NULL,
    line_offset INTEGER NOT NULL,
    line_length INTEGER NOT NULL,
    kind        TEXT    NOT NULL,
    priority    TEXT    NOT NULL,
    act         TEXT    NOT NULL,
    entity      TEXT,
    source      TEXT    NOT NULL,
    standing    TEXT    NOT NULL,
    ended_by    TEXT,
    verified    TEXT    NOT NULL,
    confirmed   INTEGER NOT NULL,
    verified_on TEXT    NOT NULL,
    low_trust   INTEGER NOT NULL,
    saying      BLOB    NOT NULL
) STRICT;

CREATE INDEX event_day ON event (day, number);
CREATE INDEX event_told ON event (told);
CREATE INDEX event_standing ON event (act, standing, kind, priority);
-- With the locations of the lines: rendering the page of an entity reads all of them.
CREATE INDEX event_entity ON event (entity, id, line_offset, line_length) WHERE entity IS NOT NULL;
CREATE INDEX event_saying ON event (saying);
CREATE INDEX event_verified ON event (act, standing, verified_on, priority);
CREATE INDEX event_unconfirmed ON event (seq) WHERE low_trust AND NOT confirmed;
CREATE INDEX event_source ON event (source) WHERE source <> 'live';

-- The tags of events.
CREATE TABLE tag (
    tag TEXT    NOT NULL,
    seq INTEGER NOT NULL,
    PRIMARY KEY (tag, seq)
) STRICT, WITHOUT ROWID;

-- Which event supersedes, closes, confirms or retracts which, archived ones included.
CREATE TABLE effect (
    source TEXT NOT NULL,
    target TEXT NOT NULL,
    PRIMARY KEY (source, target)
) STRICT, WITHOUT ROWID;

CREATE INDEX effect_target ON effect (target);

-- Archived events and the locations of their lines. Their ids are not assigned again.
CREATE TABLE archive (
    id          TEXT    PRIMARY KEY,
    day         TEXT    NOT NULL,
    number      INTEGER NOT NULL,
    told        TEXT    NOT NULL,
    entity      TEXT,
    source      TEXT    NOT NULL,
    saying      BLOB    NOT NULL,
    file        INTEGER NOT NULL,
    line_offset INTEGER NOT NULL,
    line_length INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX archive_source ON archive (source) WHERE source <> 'live';
CREATE INDEX archive_saying ON archive (saying);
CREATE INDEX archive_day ON archive (day, number);
CREATE INDEX archive_entity ON archive (entity, file, line_offset, line_length) WHERE entity IS NOT NULL;
CREATE INDEX archive_file ON archive (file);

-- The number of events of an archive per day: there are far more events than days.
CREATE TABLE archived_on (
    file   INTEGER NOT NULL,
    told   TEXT    NOT NULL,
    events INTEGER NOT NULL,
    PRIMARY KEY (file, told)
) STRICT, WITHOUT ROWID;

-- Events that are in an archive and in the ledger: their move was interrupted, or a user restored them.
CREATE TABLE twice (
    id TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- The claims of statements, as the domain parses them.
CREATE TABLE claim (
    seq       INTEGER NOT NULL,
    attribute TEXT    NOT NULL,
    value     TEXT    NOT NULL
) STRICT;

CREATE INDEX claim_attribute ON claim (attribute, value);

-- Attributes with more than one value; few, so that finding conflicts is cheap.
CREATE TABLE contested (
    attribute TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Lines that are not, or not completely, events.
CREATE TABLE fault (
    line INTEGER NOT NULL,
    what TEXT    NOT NULL
) STRICT;

-- Events that were indexed and are no longer in the ledger, because an editor removed their lines. Their ids are not
-- assigned again.
CREATE TABLE lost (
    id     TEXT PRIMARY KEY,
    day    TEXT NOT NULL,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Ids of events that are known to be lost permanently; they are not assigned again.
CREATE TABLE spent (
    id     TEXT PRIMARY KEY,
    day    TEXT NOT NULL,
    number INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The stamp of each document when it was last seen.
CREATE TABLE document (
    path  TEXT PRIMARY KEY,
    stamp TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The indexed files of records and summaries, each with its stamp when it was indexed.
CREATE TABLE taken (
    file  INTEGER PRIMARY KEY,
    path  TEXT    NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    stamp TEXT    NOT NULL
) STRICT;

-- The records: the key, and a hash of the text.
CREATE TABLE record (
    key     BLOB    PRIMARY KEY,
    wording BLOB    NOT NULL,
    file    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX record_file ON record (file);

-- The totals of the records of a file, per session. `session` is empty for those without one, `turn` the last of a chat.
CREATE TABLE session (
    day          TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    session      TEXT    NOT NULL,
    file         INTEGER NOT NULL,
    records      INTEGER NOT NULL,
    states       INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    sum          BLOB    NOT NULL,
    first        TEXT    NOT NULL,
    last         TEXT    NOT NULL,
    captured     TEXT    NOT NULL,
    turn         INTEGER NOT NULL,
    PRIMARY KEY (day, conversation, session, file)
) STRICT, WITHOUT ROWID;

CREATE INDEX session_file ON session (file);
CREATE INDEX session_conversation ON session (conversation, day);

-- Every version of every summary, in the order they were written.
CREATE TABLE summary (
    seq          INTEGER PRIMARY KEY,
    tier         TEXT    NOT NULL,
    first        TEXT    NOT NULL,
    period       TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    conversation TEXT,
    session      TEXT,
    recorded     TEXT    NOT NULL,
    source       BLOB    NOT NULL,
    log          BLOB,
    content      BLOB    NOT NULL,
    messages     INTEGER NOT NULL,
    states       INTEGER NOT NULL,
    by_hand      INTEGER NOT NULL,
    provisional  INTEGER NOT NULL,
    importance   TEXT    NOT NULL,
    headline_bytes INTEGER NOT NULL,
    body_bytes   INTEGER NOT NULL,
    line_offset  INTEGER NOT NULL,
    line_length  INTEGER NOT NULL
) STRICT;

CREATE INDEX summary_first ON summary (tier, first);
