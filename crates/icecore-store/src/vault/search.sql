-- The search index of a vault. Everything here can be made again from the files; vectors take long to be made again.

-- Counts up with every change.
CREATE TABLE state (
    one        INTEGER PRIMARY KEY CHECK (one = 0),
    generation INTEGER NOT NULL,
    next       INTEGER NOT NULL
) STRICT;

INSERT INTO state VALUES (0, 0, 1);

-- The files that passages were cut from: what they looked like, how many bytes were taken in, and a hash of those.
CREATE TABLE file (
    file    INTEGER PRIMARY KEY,
    path    TEXT    NOT NULL UNIQUE,
    stamp   TEXT    NOT NULL,
    bytes   INTEGER NOT NULL,
    running BLOB    NOT NULL
) STRICT;

-- Where each passage stands. `wording` is a hash of its words.
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

-- The names under which people speak.
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

-- Vectors, by the key of the passage and the hash of the words they stand for. They outlive the passages, so that making
-- everything anew does not cost them.
CREATE TABLE vector (
    key     INTEGER PRIMARY KEY,
    wording INTEGER NOT NULL,
    packed  BLOB    NOT NULL
) STRICT;

-- The signs of the vectors, many passages to a row, as in `piece`.
CREATE TABLE sign (
    piece INTEGER PRIMARY KEY,
    signs BLOB NOT NULL
) STRICT;
