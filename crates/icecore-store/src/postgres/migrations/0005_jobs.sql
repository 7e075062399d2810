-- What is to be done, a row for each space and kind of work: so there is never more than one of a kind for a space.
--
-- Whoever works takes a row for some time and says again and again that it is still at it; a row whose time is over is free.
-- `asked` is when somebody wants it who asked since it was last taken, perhaps while it was being done.
-- `epoch` is another whenever a row is taken, in another life of the space too: who was too slow finds that it is, and lets go.
CREATE TABLE icecore.job (
    space_id uuid        NOT NULL,
    kind     text        COLLATE "C" NOT NULL,
    due      timestamptz NOT NULL,
    asked    timestamptz,
    served   timestamptz NOT NULL DEFAULT '-infinity',
    epoch    bigint      NOT NULL DEFAULT 0,
    worker   text,
    until    timestamptz,
    failures integer     NOT NULL DEFAULT 0,
    trouble  text,
    PRIMARY KEY (space_id, kind)
);
CREATE INDEX job_waiting ON icecore.job (served, due) WHERE due < 'infinity';
CREATE INDEX job_taken ON icecore.job (until) WHERE until IS NOT NULL;
SELECT icecore.guard('job');
SELECT icecore.belong('job');
-- Workers go from space to space, by the functions below and by nothing else.
CREATE POLICY worked ON icecore.job TO CURRENT_USER USING (true) WITH CHECK (true);
GRANT SELECT, INSERT, UPDATE ON icecore.job TO icecore_app;

-- How long it is waited before what failed so often already is tried again: longer each time, up to an hour.
CREATE FUNCTION icecore.again_after(failures integer) RETURNS interval LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT least(15 * power(2, least(failures, 20)), 3600) * interval '1 second' $$;

-- Takes the work that has waited longest since its space was last served: no space comes twice before every other that waits
-- has come once. Rows that somebody else is just taking are passed over, and spaces that are not whole yet.
CREATE FUNCTION icecore.take_job(which text[], who text, lease interval) RETURNS TABLE (space text, kind text, epoch bigint, failures integer)
    LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog
    AS $$
        -- Whoever had these ended without a word. Perhaps the work itself has ended them, so it counts like any other failure.
        WITH lapsed AS (SELECT space_id, kind FROM icecore.job WHERE until < now() FOR UPDATE SKIP LOCKED)
        UPDATE icecore.job SET worker = NULL, until = NULL, failures = job.failures + 1, due = job.until + icecore.again_after(job.failures),
            trouble = 'whoever worked at it ended without a word'
        FROM lapsed WHERE job.space_id = lapsed.space_id AND job.kind = lapsed.kind;
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
        SELECT space.name, taken.kind, taken.epoch, taken.failures FROM taken JOIN icecore.space USING (space_id)
    $$;

-- How much waits, how much is being done, and how long the oldest has waited.
CREATE FUNCTION icecore.job_counts() RETURNS TABLE (kind text, waiting bigint, at_work bigint, failing bigint, oldest double precision)
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog
    AS $$
        SELECT job.kind, count(*) FILTER (WHERE job.due <= now() AND (job.until IS NULL OR job.until < now())),
            count(*) FILTER (WHERE job.until >= now()), count(*) FILTER (WHERE job.failures > 0),
            coalesce(extract(epoch FROM now() - min(job.due) FILTER (WHERE job.due <= now() AND (job.until IS NULL OR job.until < now()))), 0)::double precision
        FROM icecore.job JOIN icecore.space USING (space_id) WHERE space.filling IS NULL GROUP BY job.kind ORDER BY job.kind
    $$;

-- A space that sleeps, because nothing was written since it was last tended, wakes when something is.
CREATE FUNCTION icecore.wake() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ BEGIN
        UPDATE icecore.job SET due = now() WHERE space_id = NEW.space_id AND kind = 'tend' AND due = 'infinity';
        IF FOUND THEN
            NOTIFY icecore_jobs;
        END IF;
        RETURN NULL;
    END $$;
CREATE TRIGGER wakes AFTER INSERT OR UPDATE ON icecore.document FOR EACH ROW
    WHEN (NEW.path = 'memory/ledger.jsonl' OR NEW.path LIKE 'memory/messages/%' OR NEW.path LIKE 'memory/snapshots/%')
    EXECUTE FUNCTION icecore.wake();

-- Every space has something to be tended from the start.
CREATE FUNCTION icecore.tended() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ BEGIN
        INSERT INTO icecore.job (space_id, kind, due) VALUES (NEW.space_id, 'tend', now()) ON CONFLICT DO NOTHING;
        RETURN NULL;
    END $$;
CREATE TRIGGER tended AFTER INSERT ON icecore.space FOR EACH ROW EXECUTE FUNCTION icecore.tended();
