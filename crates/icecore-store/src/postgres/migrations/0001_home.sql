-- The home of many memories. Documents are the truth, byte for byte; everything else can be made again from them, but for
-- who may do what, what is to be done, and who did what.
--
-- Every row is one space's, and `space_id` leads every key: a cluster that spreads tables over machines spreads them by it.
-- Whoever works with a space takes the role `icecore_app` and names the space, both for one transaction; what is another's
-- is then not there.

CREATE SCHEMA icecore;

-- The steps that were taken. A program that knows fewer than `least` of them cannot work with the tables any more; one that does goes on.
CREATE TABLE icecore.migration (
    number      integer     PRIMARY KEY,
    name        text        NOT NULL,
    fingerprint text        NOT NULL,
    least       integer     NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);

-- Which space this transaction is about; none if it has not said.
CREATE FUNCTION icecore.this_space() RETURNS uuid LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT nullif(current_setting('icecore.space', true), '')::uuid $$;

-- Whether a document only ever grows: ledgers, archives, records, summaries, runs.
CREATE FUNCTION icecore.only_grows(path text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT path ~ '^(memory|conversations)/.*\.jsonl$' AND path !~ '^memory/tool/' $$;

-- Refuses whatever it is asked about.
CREATE FUNCTION icecore.refuse() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'what is in icecore.% is never changed', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege'; END $$;

-- The spaces there are. The id is made from the name, so that nobody has to look it up; one that is taken away and made again
-- has the same id and another life. One that a whole memory is being brought into is `filling`, and nobody but whoever does that
-- uses it; `filled_until` it is waited for them.
CREATE TABLE icecore.space (
    space_id     uuid        PRIMARY KEY,
    name         text        NOT NULL,
    life         uuid        NOT NULL DEFAULT gen_random_uuid(),
    made         timestamptz NOT NULL DEFAULT now(),
    filling      uuid,
    filled_until timestamptz
);

-- Whoever writes says first in which life of the space, and holds that until the transaction ends: it is not taken away meanwhile, and
-- what was meant for an earlier life does not come into this one. Many may write at once; whoever wants to be alone is let in before
-- those who come later, which a lock of the row would not promise.
CREATE FUNCTION icecore.door() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT hashtextextended(icecore.this_space()::text, 3) $$;
CREATE FUNCTION icecore.enter(known uuid, filler uuid) RETURNS void LANGUAGE plpgsql SET search_path = pg_catalog
    AS $$ DECLARE found_filler uuid; BEGIN
        PERFORM pg_advisory_xact_lock_shared(icecore.door());
        SELECT filling INTO found_filler FROM icecore.space WHERE space_id = icecore.this_space() AND life = known;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'this space is not there any more' USING ERRCODE = 'foreign_key_violation';
        ELSIF found_filler IS DISTINCT FROM filler THEN
            RAISE EXCEPTION 'this space is being filled' USING ERRCODE = 'object_in_use';
        END IF;
    END $$;

-- Waits until nobody writes, and lets nobody write until this transaction has ended.
CREATE FUNCTION icecore.enter_alone() RETURNS void LANGUAGE sql
    AS $$ SELECT pg_advisory_xact_lock(icecore.door()) $$;

-- What is written belongs to a space that is there: of what is taken away nothing comes back, whoever was in the middle of writing it.
CREATE FUNCTION icecore.belong(which text) RETURNS void LANGUAGE plpgsql
    AS $$ BEGIN EXECUTE format('ALTER TABLE icecore.%I ADD FOREIGN KEY (space_id) REFERENCES icecore.space', which); END $$;
REVOKE ALL ON FUNCTION icecore.belong(text) FROM PUBLIC;

-- A version after that one: what a document's stamp and a ledger's position are. By the clock, so that a server that takes over
-- from one whose last writes were lost does not give their versions again.
CREATE FUNCTION icecore.version_after(before bigint) RETURNS bigint LANGUAGE sql VOLATILE
    AS $$ SELECT greatest(before + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) $$;

-- What there is, without what is in it. `ended`: it is empty or ends with a line break.
CREATE TABLE icecore.document (
    space_id uuid        NOT NULL,
    path     text        COLLATE "C" NOT NULL,
    length   bigint      NOT NULL,
    ended    boolean     NOT NULL,
    version  bigint      NOT NULL DEFAULT icecore.version_after(0),
    changed  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (space_id, path)
);

-- What is in documents: pieces that follow each other, each at the byte it begins with. The version is the one that the document
-- got with it: as long as the piece is there, the document has only grown since.
CREATE TABLE icecore.chunk (
    space_id uuid   NOT NULL,
    path     text   COLLATE "C" NOT NULL,
    at       bigint NOT NULL,
    version  bigint NOT NULL,
    bytes    bytea  NOT NULL,
    PRIMARY KEY (space_id, path, at)
);
-- Most pieces are a line or two of text that is read back at once.
ALTER TABLE icecore.chunk ALTER COLUMN bytes SET COMPRESSION pglz;
CREATE TRIGGER never_changed BEFORE UPDATE ON icecore.chunk FOR EACH ROW EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON icecore.chunk EXECUTE FUNCTION icecore.refuse();

-- Takes the pieces of a document away, to be replaced or for good. One that only grows goes only if that was meant: by a
-- transaction that has named it in `icecore.replacing`.
CREATE FUNCTION icecore.clear(which text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ BEGIN
        IF icecore.only_grows(which) AND coalesce(current_setting('icecore.replacing', true), '') <> which THEN
            RAISE EXCEPTION '% only grows', which USING ERRCODE = 'insufficient_privilege';
        END IF;
        DELETE FROM icecore.chunk WHERE space_id = icecore.this_space() AND path = which;
    END $$;

-- What is private to a space and can be done without: notes, models' answers, what was looked at.
CREATE TABLE icecore.note (
    space_id uuid        NOT NULL,
    name     text        COLLATE "C" NOT NULL,
    bytes    bytea       NOT NULL,
    changed  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (space_id, name)
);
CREATE TABLE icecore.answer (
    space_id uuid        NOT NULL,
    question bytea       NOT NULL,
    answer   bytea       NOT NULL,
    kept     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (space_id, question)
);
CREATE TABLE icecore.seen (
    space_id uuid NOT NULL,
    path     text COLLATE "C" NOT NULL,
    stamp    text NOT NULL,
    PRIMARY KEY (space_id, path)
);
-- Bytes that were found broken and set aside.
CREATE TABLE icecore.aside (
    space_id uuid        NOT NULL,
    place    text        COLLATE "C" NOT NULL,
    bytes    bytea       NOT NULL,
    kept     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (space_id, place)
);

-- Which records there are: the key, and a hash of the words; and what they come to, session by session, as in a vault's index.
-- A name may be any text, also one that `text` does not take; and a day any that a record can claim, also one that `date` does not.
CREATE TABLE icecore.record (
    space_id uuid  NOT NULL,
    key      bytea NOT NULL,
    wording  bytea NOT NULL,
    path     text  COLLATE "C" NOT NULL,
    PRIMARY KEY (space_id, key)
);
CREATE INDEX record_path ON icecore.record (space_id, path);
CREATE TABLE icecore.session (
    space_id     uuid   NOT NULL,
    day          text   COLLATE "C" NOT NULL,
    conversation bytea  NOT NULL,
    session      bytea  NOT NULL,
    path         text   COLLATE "C" NOT NULL,
    records      bigint NOT NULL,
    states       bigint NOT NULL,
    bytes        bigint NOT NULL,
    sum          bytea  NOT NULL,
    first        text   NOT NULL,
    last         text   NOT NULL,
    captured     text   NOT NULL,
    turn         bigint NOT NULL,
    PRIMARY KEY (space_id, day, conversation, session, path)
);
CREATE INDEX session_conversation ON icecore.session (space_id, conversation, day);
CREATE INDEX session_path ON icecore.session (space_id, path);

-- Takes everything of this transaction's space away.
CREATE FUNCTION icecore.erase() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ DECLARE name text; BEGIN
        -- Whoever is writing finishes first; whoever comes later finds nothing to write to.
        PERFORM icecore.enter_alone();
        PERFORM FROM icecore.space WHERE space_id = icecore.this_space() FOR UPDATE;
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'icecore' AND tablename NOT IN ('migration', 'space', 'audit', 'job_run')
            AND EXISTS (SELECT FROM information_schema.columns WHERE table_schema = 'icecore' AND table_name = tablename AND column_name = 'space_id')
        LOOP
            EXECUTE format('DELETE FROM icecore.%I WHERE space_id = icecore.this_space()', name);
        END LOOP;
        DELETE FROM icecore.space WHERE space_id = icecore.this_space();
    END $$;

-- Every space there is, for whoever looks after all of them.
CREATE FUNCTION icecore.spaces(after text, most bigint) RETURNS TABLE (name text, made timestamptz)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
    AS $$ SELECT space.name, space.made FROM icecore.space WHERE space.name COLLATE "C" > after ORDER BY space.name COLLATE "C" LIMIT most $$;

-- Guards a table: nobody sees or touches a row of another space, its owner included.
CREATE FUNCTION icecore.guard(which text) RETURNS void LANGUAGE plpgsql
    AS $$ BEGIN
        EXECUTE format('ALTER TABLE icecore.%I ENABLE ROW LEVEL SECURITY', which);
        EXECUTE format('ALTER TABLE icecore.%I FORCE ROW LEVEL SECURITY', which);
        EXECUTE format('CREATE POLICY own ON icecore.%I USING (space_id = icecore.this_space()) WITH CHECK (space_id = icecore.this_space())', which);
    END $$;
REVOKE ALL ON FUNCTION icecore.guard(text) FROM PUBLIC;
SELECT icecore.guard(name) FROM unnest(ARRAY['space', 'document', 'chunk', 'note', 'answer', 'seen', 'aside', 'record', 'session']) AS name;
SELECT icecore.belong(name) FROM unnest(ARRAY['document', 'chunk', 'note', 'answer', 'seen', 'aside', 'record', 'session']) AS name;
-- The owner's own functions may list the spaces; a transaction of a space does not work as the owner.
CREATE INDEX space_name ON icecore.space (name COLLATE "C");
CREATE POLICY listed ON icecore.space FOR SELECT TO CURRENT_USER USING (true);

GRANT USAGE ON SCHEMA icecore TO icecore_app;
GRANT SELECT ON icecore.migration TO icecore_app;
GRANT SELECT, INSERT ON icecore.space, icecore.chunk TO icecore_app;
GRANT UPDATE (filling, filled_until) ON icecore.space TO icecore_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.document, icecore.note, icecore.answer, icecore.seen, icecore.aside, icecore.record, icecore.session
    TO icecore_app;
