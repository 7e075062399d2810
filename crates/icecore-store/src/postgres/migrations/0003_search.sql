-- Search: what passages there are, and the terms in them. Everything here can be made again from the documents; vectors take
-- long to be made again. What a passage is, what its terms are and which stands first, the program says.

-- One row for each space that was ever searched; whoever changes anything below holds it. `generation` is other after every
-- change. The others are the next numbers to be given.
CREATE TABLE icecore.search_state (
    space_id      uuid    PRIMARY KEY,
    generation    bigint  NOT NULL DEFAULT icecore.version_after(0),
    next          integer NOT NULL DEFAULT 1,
    next_document integer NOT NULL DEFAULT 1,
    next_group    integer NOT NULL DEFAULT 1,
    next_voice    integer NOT NULL DEFAULT 1
);

-- The documents that passages were cut from: what they looked like, how many bytes were taken in, and whether that was all
-- there was to take.
CREATE TABLE icecore.indexed (
    space_id uuid    NOT NULL,
    path     text    COLLATE "C" NOT NULL,
    number   integer NOT NULL,
    version  bigint  NOT NULL,
    length   bigint  NOT NULL,
    bytes    bigint  NOT NULL,
    whole    boolean NOT NULL,
    PRIMARY KEY (space_id, path),
    UNIQUE (space_id, number)
);

-- Where each passage stands, and its terms. `wording` is a hash of its words. A term begins with four letters that stand for
-- the space, so that what is looked up is one space's from the start; how often it stands there is the sum of its positions.
CREATE TABLE icecore.passage (
    space_id uuid     NOT NULL,
    key      bigint   NOT NULL,
    wording  bigint   NOT NULL,
    start    bigint   NOT NULL,
    number   integer  NOT NULL,
    length   integer  NOT NULL,
    document integer  NOT NULL,
    nth      smallint NOT NULL,
    terms    tsvector NOT NULL,
    PRIMARY KEY (space_id, number)
);
CREATE UNIQUE INDEX passage_key ON icecore.passage (space_id, key);
CREATE INDEX passage_document ON icecore.passage (space_id, document);
-- What waits to be put into such an index is gone through by every search of every space, so nothing waits.
CREATE INDEX passage_terms ON icecore.passage USING gin (terms) WITH (fastupdate = off);

-- More terms of passages that have more than one row can hold.
CREATE TABLE icecore.passage_more (
    space_id uuid     NOT NULL,
    number   integer  NOT NULL,
    nth      smallint NOT NULL,
    terms    tsvector NOT NULL,
    PRIMARY KEY (space_id, number, nth)
);
CREATE INDEX passage_more_terms ON icecore.passage_more USING gin (terms) WITH (fastupdate = off);

-- Whether a document is the one that was taken in, or has grown since: the last piece of what it was then is still there.
CREATE FUNCTION icecore.has_only_grown(space uuid, which text, version_then bigint, length_then bigint) RETURNS boolean LANGUAGE sql STABLE
    AS $$ SELECT version = version_then FROM icecore.chunk WHERE space_id = space AND path = which AND at < length_then ORDER BY at DESC LIMIT 1 $$;

-- The few numbers of each passage that ranking needs, and the signs of its vector, many passages to a row.
CREATE TABLE icecore.corpus (
    space_id   uuid    NOT NULL,
    piece      integer NOT NULL,
    generation bigint  NOT NULL,
    rows       bytea   NOT NULL,
    PRIMARY KEY (space_id, piece)
) WITH (fillfactor = 70);
CREATE TABLE icecore.sign (
    space_id   uuid       NOT NULL,
    piece      integer    NOT NULL,
    generation bigint     NOT NULL,
    signs      bit(384)[] NOT NULL,
    PRIMARY KEY (space_id, piece)
) WITH (fillfactor = 70);

-- Sessions, pages and logs. Names are bytes: a text may not have everything in it that a name may.
CREATE TABLE icecore.grouping (
    space_id     uuid    NOT NULL,
    name         bytea   NOT NULL,
    number       integer NOT NULL,
    conversation bytea,
    PRIMARY KEY (space_id, name)
);
CREATE INDEX grouping_conversation ON icecore.grouping (space_id, conversation) WHERE conversation IS NOT NULL;

-- The names under which people speak.
CREATE TABLE icecore.voice (
    space_id uuid    NOT NULL,
    name     bytea   NOT NULL,
    number   integer NOT NULL,
    PRIMARY KEY (space_id, name)
);

-- Vectors, by the key of the passage and the hash of the words they stand for. They outlive the passages, so that making
-- everything anew does not cost them.
CREATE TABLE icecore.vector (
    space_id uuid   NOT NULL,
    key      bigint NOT NULL,
    wording  bigint NOT NULL,
    packed   bytea  NOT NULL,
    PRIMARY KEY (space_id, key)
);

SELECT icecore.guard(name) FROM unnest(ARRAY['search_state', 'indexed', 'passage', 'passage_more', 'corpus', 'sign', 'grouping', 'voice', 'vector']) AS name;
SELECT icecore.belong(name) FROM unnest(ARRAY['search_state', 'indexed', 'passage', 'passage_more', 'corpus', 'sign', 'grouping', 'voice', 'vector']) AS name;
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.search_state, icecore.indexed, icecore.passage, icecore.passage_more, icecore.corpus, icecore.sign,
    icecore.grouping, icecore.voice, icecore.vector TO icecore_app;

-- Where terms stand in this transaction's space: for each of `sought` that stands anywhere its place among them, the passages
-- and how often. A role that sees only its own rows cannot use an index of terms, as the database would have to look into the
-- rows of others to do so; so this works as the owner, and keeps to the space itself.
CREATE POLICY searched ON icecore.passage FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY searched ON icecore.passage_more FOR SELECT TO CURRENT_USER USING (true);
CREATE FUNCTION icecore.postings(question text, sought text[]) RETURNS TABLE (nth integer, numbers integer[], counts integer[])
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog SET enable_seqscan = off
    AS $$ BEGIN
        RETURN QUERY
        -- First what has the terms, then whose it is: the terms say it already, and better.
        WITH found AS MATERIALIZED (
            SELECT space_id, number, terms FROM icecore.passage WHERE terms @@ question::tsquery
            UNION ALL
            SELECT space_id, number, terms FROM icecore.passage_more WHERE terms @@ question::tsquery
        ), stands AS (
            SELECT word.lexeme, found.number, (SELECT sum(position) FROM unnest(word.positions) AS position)::integer AS count
            FROM found CROSS JOIN LATERAL unnest(found.terms) AS word
            WHERE found.space_id = icecore.this_space() AND word.lexeme = ANY (sought)
        )
        SELECT asked.nth::integer, array_agg(stands.number ORDER BY stands.number), array_agg(stands.count ORDER BY stands.number)
        FROM unnest(sought) WITH ORDINALITY AS asked (lexeme, nth) JOIN stands ON stands.lexeme = asked.lexeme
        GROUP BY asked.nth;
    END $$;
REVOKE ALL ON FUNCTION icecore.postings(text, text[]) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION icecore.postings(text, text[]) TO icecore_app;

-- The passages whose signs differ least from these: which of which row of many, and in how many places. With pgvector, where
-- there is one, this takes half the time.
DO $do$ DECLARE differing text := 'bit_count(one.signs # sought)'; BEGIN
    IF EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector' AND string_to_array(default_version, '.')::integer[] >= '{0,7}') THEN
        BEGIN
            CREATE EXTENSION IF NOT EXISTS vector;
            SELECT format('(one.signs OPERATOR(%I.<~>) sought)', nspname) INTO differing
            FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector';
        EXCEPTION WHEN insufficient_privilege THEN
            -- It is there, but not for everybody.
            NULL;
        END;
    END IF;
    EXECUTE format($make$
        CREATE FUNCTION icecore.nearest(sought bit, most integer) RETURNS TABLE (piece integer, nth integer, distance integer)
            LANGUAGE sql STABLE SET search_path = pg_catalog
            AS $$
                SELECT sign.piece, one.nth::integer, %s::integer
                FROM icecore.sign CROSS JOIN LATERAL unnest(sign.signs) WITH ORDINALITY AS one (signs, nth)
                WHERE sign.space_id = icecore.this_space() AND one.signs <> repeat('0', 384)::bit(384)
                ORDER BY 3, 1, 2 LIMIT most
            $$
        $make$, differing);
END $do$;
REVOKE ALL ON FUNCTION icecore.nearest(bit, integer) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION icecore.nearest(bit, integer) TO icecore_app;
