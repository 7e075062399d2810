-- Snapshots: states of a space that can be gone back to.

-- Which there are, counted up.
CREATE TABLE icecore.snapshot (
    space_id uuid        NOT NULL,
    number   bigint      NOT NULL,
    id       text        COLLATE "C" NOT NULL,
    at       timestamptz NOT NULL,
    note     text        NOT NULL,
    PRIMARY KEY (space_id, number),
    UNIQUE (space_id, id)
);

-- What each changed: which document got which content, none if it was gone. A snapshot has of each document what was kept last.
CREATE TABLE icecore.kept (
    space_id uuid   NOT NULL,
    path     text   COLLATE "C" NOT NULL,
    number   bigint NOT NULL,
    hash     bytea,
    PRIMARY KEY (space_id, path, number)
);

-- The contents, once each, by their SHA-256.
CREATE TABLE icecore.blob (
    space_id uuid  NOT NULL,
    hash     bytea NOT NULL,
    bytes    bytea NOT NULL,
    PRIMARY KEY (space_id, hash)
);

-- What the newest snapshot has, and at which version each document was then, so that one that is still the same need not be read.
CREATE TABLE icecore.newest (
    space_id uuid   NOT NULL,
    path     text   COLLATE "C" NOT NULL,
    version  bigint NOT NULL,
    hash     bytea  NOT NULL,
    PRIMARY KEY (space_id, path)
);

-- The past is never changed in part. Who makes it anew without what is to be forgotten says so in `icecore.replacing`, clears
-- it, puts in what is left, and clears the contents that nothing refers to any more.
CREATE FUNCTION icecore.clear_snapshots() RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ BEGIN
        IF coalesce(current_setting('icecore.replacing', true), '') <> 'snapshots' THEN
            RAISE EXCEPTION 'snapshots are never taken away' USING ERRCODE = 'insufficient_privilege';
        END IF;
        DELETE FROM icecore.snapshot WHERE space_id = icecore.this_space();
        DELETE FROM icecore.kept WHERE space_id = icecore.this_space();
    END $$;
CREATE FUNCTION icecore.clear_blobs() RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ DELETE FROM icecore.blob WHERE space_id = icecore.this_space()
        AND hash NOT IN (SELECT hash FROM icecore.kept WHERE space_id = icecore.this_space() AND hash IS NOT NULL) $$;

CREATE TRIGGER never_changed BEFORE UPDATE ON icecore.snapshot FOR EACH ROW EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON icecore.snapshot EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_changed BEFORE UPDATE ON icecore.kept FOR EACH ROW EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON icecore.kept EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_changed BEFORE UPDATE ON icecore.blob FOR EACH ROW EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON icecore.blob EXECUTE FUNCTION icecore.refuse();

SELECT icecore.guard(name) FROM unnest(ARRAY['snapshot', 'kept', 'blob', 'newest']) AS name;
SELECT icecore.belong(name) FROM unnest(ARRAY['snapshot', 'kept', 'blob', 'newest']) AS name;
GRANT SELECT, INSERT ON icecore.snapshot, icecore.kept, icecore.blob TO icecore_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.newest TO icecore_app;
