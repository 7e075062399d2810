-- The order of work and of turns between processes.

-- Work that only one may be at: whoever has it says again and again that it is still there. After `until` anybody may have it.
CREATE TABLE icecore.claim (
    space_id uuid        NOT NULL REFERENCES icecore.space,
    work     text        COLLATE "C" NOT NULL,
    holder   uuid        NOT NULL,
    until    timestamptz NOT NULL,
    PRIMARY KEY (space_id, work)
);
SELECT icecore.guard('claim');
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.claim TO icecore_app;

-- Conversations whose last exchange is being remembered, or is to be: whoever goes on with one looks here first.
-- `until` it is waited for, if it is awaited; after it anybody may see to it. Whoever remembers it has it until `held`.
CREATE TABLE icecore.waiting (
    space_id     uuid        NOT NULL,
    conversation text        COLLATE "C" NOT NULL,
    announced    bigint      NOT NULL,
    awaited      boolean     NOT NULL,
    until        timestamptz NOT NULL,
    holder       text,
    held         timestamptz,
    PRIMARY KEY (space_id, conversation)
);
CREATE INDEX waiting_until ON icecore.waiting (until);
SELECT icecore.guard('waiting');
SELECT icecore.belong('waiting');
-- The owner's own function looks through all of them.
CREATE POLICY seen_to ON icecore.waiting TO CURRENT_USER USING (true);
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.waiting TO icecore_app;

-- Conversations that nobody sees to, of a space and those of its users, at most so many. Nobody else is given them for a while.
CREATE FUNCTION icecore.unremembered(home text, most bigint, seconds double precision) RETURNS TABLE (space text, conversation text)
    LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog
    AS $$
        WITH due AS (
            SELECT waiting.space_id, waiting.conversation, space.name FROM icecore.waiting JOIN icecore.space USING (space_id)
            WHERE waiting.until < now() AND (waiting.held IS NULL OR waiting.held < now())
                AND (space.name = home OR starts_with(space.name, home || '/'))
            ORDER BY waiting.until LIMIT most FOR UPDATE OF waiting SKIP LOCKED
        )
        UPDATE icecore.waiting SET until = now() + make_interval(secs => seconds) FROM due
        WHERE waiting.space_id = due.space_id AND waiting.conversation = due.conversation
        RETURNING due.name, waiting.conversation
    $$;
REVOKE ALL ON FUNCTION icecore.unremembered(text, bigint, double precision) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION icecore.unremembered(text, bigint, double precision) TO icecore_app;
