-- The search index of a vault. Everything here can be rebuilt from the files; vectors take long to compute.

-- Incremented with every change.
CREATE TABLE state (
    one        INTEGER PRIMARY KEY CHECK (one = 0),
    generation INTEGER NOT NULL,
    next       INTEGER NOT NULL
) STRICT;

INSERT INTO state VALUES (0, 0, 1);

-- The indexed files: their stamp, the number of indexed bytes, and a hash of those.
CREATE TABLE file (
    file    INTEGER PRIMARY KEY,
    path    TEXT    NOT NULL UNIQUE,
    stamp   TEXT    NOT NULL,
    bytes   INTEGER NOT NULL,
    running BLOB    NOT NULL
) STRICT;

-- The location of each passage. `wording` is a hash of its text.
CREATE TABLE passage (
    number  INTEGER PRIMARY KEY,
    key     INTEGER NOT NULL,
    file    INTEGER NOT NULL,
    start   INTEGER NOT NULL,
    length  INTEGER NOT NULL,
    nth     INTEGER NOT NULL,
    wording INTEGER NOT NULL
) STRICT;

CREATE INDEX passage_key ON passage (key);
CREATE INDEX passage_file ON passage (file);

-- The few numbers of each passage that ranking needs, many passages to a row.
CREATE TABLE piece (
    piece INTEGER PRIMARY KEY,
    rows  BLOB NOT NULL
) STRICT;

-- Sessions, pages and logs.
CREATE TABLE grouping (
    number       INTEGER PRIMARY KEY,
    name         TEXT NOT NULL UNIQUE,
    conversation TEXT
) STRICT;

CREATE INDEX grouping_conversation ON grouping (conversation) WHERE conversation IS NOT NULL;

-- The names of speakers.
CREATE TABLE voice (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE term (
    number INTEGER PRIMARY KEY,
    term   TEXT NOT NULL UNIQUE
) STRICT;

-- Blocks of postings. `place` is the term's number times 2^32, plus the block's first passage.
CREATE TABLE posting (
    place INTEGER PRIMARY KEY,
    last  INTEGER NOT NULL,
    block BLOB    NOT NULL
) STRICT;

-- Vectors, by the key of the passage and the hash of its text. They outlive the passages, so that a rebuild does not lose
-- them.
CREATE TABLE vector (
    key     INTEGER PRIMARY KEY,
    wording INTEGER NOT NULL,
    packed  BLOB    NOT NULL
) STRICT;

-- The sign bits of the vectors, many passages to a row, as in `piece`.
CREATE TABLE sign (
    piece INTEGER PRIMARY KEY,
    signs BLOB NOT NULL
) STRICT;
