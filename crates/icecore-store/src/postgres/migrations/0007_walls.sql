-- Tables and functions belong to a role that cannot log in, a transaction of one space learns nothing of another by any function, and every
-- transaction says how many steps its program knows.

-- Refuses a program that is too old for the tables. A transaction begins with it, and its lock of the table is held until the transaction
-- ends: whoever takes a step waits for those that began before it.
CREATE FUNCTION icecore.require_known(known integer) RETURNS void LANGUAGE plpgsql
    AS $$ DECLARE needed integer; taken integer; BEGIN
        SELECT max(migration.least), max(migration.number) INTO needed, taken FROM icecore.migration;
        IF needed > known THEN
            RAISE EXCEPTION 'its tables are newer (% steps) than this program knows (%); use the newer program', taken, known USING ERRCODE = 'IC001';
        END IF;
    END $$;

-- The functions that look across spaces refuse to do so for a transaction that has named one.

CREATE OR REPLACE FUNCTION icecore.spaces(after text, most bigint) RETURNS TABLE (name text, made timestamptz)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        RETURN QUERY SELECT space.name, space.made FROM icecore.space WHERE space.name COLLATE "C" > after ORDER BY space.name COLLATE "C" LIMIT most;
    END $$;

CREATE OR REPLACE FUNCTION icecore.take_job(which text[], who text, lease interval)
    RETURNS TABLE (space text, kind text, epoch bigint, failures integer)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        -- The workers that had these ended without a result. Perhaps the work itself has ended them, so it counts like any other failure.
        WITH lapsed AS (SELECT job.space_id, job.kind FROM icecore.job WHERE job.until < now() FOR UPDATE SKIP LOCKED)
        UPDATE icecore.job SET worker = NULL, until = NULL, failures = job.failures + 1, due = job.until + icecore.again_after(job.failures),
            trouble = 'whoever worked at it ended without a word'
        FROM lapsed WHERE job.space_id = lapsed.space_id AND job.kind = lapsed.kind;
        RETURN QUERY
        WITH free AS (
            SELECT job.space_id, job.kind FROM icecore.job
            WHERE job.due <= now() AND job.until IS NULL AND job.kind = ANY (which)
                AND NOT EXISTS (SELECT FROM icecore.space WHERE space.space_id = job.space_id AND space.filling IS NOT NULL)
            ORDER BY job.served, job.due LIMIT 1 FOR UPDATE SKIP LOCKED
        ), taken AS (
            UPDATE icecore.job SET worker = who, until = now() + lease, served = now(), asked = NULL, epoch = icecore.version_after(job.epoch)
            FROM free WHERE job.space_id = free.space_id AND job.kind = free.kind
            RETURNING job.space_id, job.kind, job.epoch, job.failures
        )
        SELECT space.name, taken.kind, taken.epoch, taken.failures FROM taken JOIN icecore.space USING (space_id);
    END $$;

CREATE OR REPLACE FUNCTION icecore.job_counts() RETURNS TABLE (kind text, waiting bigint, at_work bigint, failing bigint, oldest double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        RETURN QUERY
        SELECT job.kind, count(*) FILTER (WHERE job.due <= now() AND (job.until IS NULL OR job.until < now())),
            count(*) FILTER (WHERE job.until >= now()), count(*) FILTER (WHERE job.failures > 0),
            coalesce(extract(epoch FROM now() - min(job.due) FILTER (WHERE job.due <= now() AND (job.until IS NULL OR job.until < now()))), 0)::double precision
        FROM icecore.job JOIN icecore.space USING (space_id) WHERE space.filling IS NULL GROUP BY job.kind ORDER BY job.kind;
    END $$;

CREATE OR REPLACE FUNCTION icecore.unremembered(home text, most bigint, seconds double precision) RETURNS TABLE (space text, conversation text)
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        RETURN QUERY
        WITH due AS (
            SELECT waiting.space_id, waiting.conversation, space.name FROM icecore.waiting JOIN icecore.space USING (space_id)
            WHERE waiting.until < now() AND (waiting.held IS NULL OR waiting.held < now())
                AND (space.name = home OR starts_with(space.name, home || '/'))
            ORDER BY waiting.until LIMIT most FOR UPDATE OF waiting SKIP LOCKED
        )
        UPDATE icecore.waiting SET until = now() + make_interval(secs => seconds) FROM due
        WHERE waiting.space_id = due.space_id AND waiting.conversation = due.conversation
        RETURNING due.name, waiting.conversation;
    END $$;

-- Everything goes to `icecore_owner`, which cannot log in: the policies that let functions look across spaces hold for it alone, and a
-- login is a member of it only while it takes steps. What an extension has put into the schema stays the extension's.
DO $$ DECLARE one record; BEGIN
    ALTER SCHEMA icecore OWNER TO icecore_owner;
    FOR one IN SELECT oid::regclass AS what FROM pg_class WHERE relnamespace = 'icecore'::regnamespace AND relkind IN ('r', 'p', 'S', 'v', 'm')
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = pg_class.oid AND deptype = 'e')
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO icecore_owner', one.what);
    END LOOP;
    FOR one IN SELECT oid::regprocedure AS what FROM pg_proc WHERE pronamespace = 'icecore'::regnamespace
        AND NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_proc'::regclass AND objid = pg_proc.oid AND deptype = 'e')
    LOOP
        EXECUTE format('ALTER ROUTINE %s OWNER TO icecore_owner', one.what);
    END LOOP;
    FOR one IN SELECT tablename, policyname FROM pg_policies WHERE schemaname = 'icecore' AND roles <> '{public}' LOOP
        EXECUTE format('ALTER POLICY %I ON icecore.%I TO icecore_owner', one.policyname, one.tablename);
    END LOOP;
END $$;
