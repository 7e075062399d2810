-- Who may do what, how much, and who did what.
--
-- A home is a space and those beneath it, whose names begin with its own and a slash. What holds for all of a home stands under its name and
-- a slash alone, which is no space.

-- What somebody shows to be let in; only its hash is kept. It is good for a space and those beneath it.
CREATE TABLE icecore.token (
    space_id uuid        NOT NULL,
    token_id text        COLLATE "C" NOT NULL,
    hash     bytea       NOT NULL CHECK (octet_length(hash) = 32),
    space    text        COLLATE "C" NOT NULL,
    label    text        NOT NULL,
    scopes   text[]      NOT NULL CHECK (cardinality(scopes) > 0 AND scopes <@ ARRAY['read', 'write', 'admin', 'proxy']),
    made     timestamptz NOT NULL DEFAULT now(),
    expires  timestamptz,
    revoked  timestamptz,
    used     timestamptz,
    PRIMARY KEY (space_id, token_id)
);
CREATE UNIQUE INDEX token_hash ON icecore.token (space_id, hash);
-- It is looked up before anybody knows whose it is.
CREATE INDEX token_shown ON icecore.token (hash);
CREATE INDEX token_called ON icecore.token (token_id);
CREATE INDEX token_space ON icecore.token (space);

-- Who read and wrote what: never what it said. Only ever added to.
CREATE SEQUENCE icecore.deed;
CREATE TABLE icecore.audit (
    space_id uuid        NOT NULL,
    number   bigint      NOT NULL DEFAULT nextval('icecore.deed'),
    at       timestamptz NOT NULL DEFAULT now(),
    space    text        COLLATE "C" NOT NULL,
    token    text        NOT NULL,
    door     text        NOT NULL,
    who      text        NOT NULL,
    verb     text        NOT NULL,
    what     text        NOT NULL,
    status   integer     NOT NULL,
    PRIMARY KEY (space_id, number)
);
CREATE INDEX audit_at ON icecore.audit (at);
CREATE TRIGGER never_changed BEFORE UPDATE OR DELETE ON icecore.audit FOR EACH ROW EXECUTE FUNCTION icecore.refuse();
CREATE TRIGGER never_emptied BEFORE TRUNCATE ON icecore.audit EXECUTE FUNCTION icecore.refuse();

-- How much a space may do. Nothing: what holds for all of them; below nought: as much as it likes.
CREATE TABLE icecore.quota (
    space_id             uuid   PRIMARY KEY,
    requests_per_minute  bigint,
    messages_per_day     bigint,
    bytes                bigint,
    model_tokens_per_day bigint
);
-- What it has done, day by day in UTC. Messages are counted where they are kept, in the same transaction and once each: what is derived
-- anew, brought in whole or forgotten counts for nothing.
CREATE TABLE icecore.used (
    space_id     uuid   NOT NULL,
    day          date   NOT NULL DEFAULT current_date,
    messages     bigint NOT NULL DEFAULT 0,
    model_tokens bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (space_id, day)
);

SELECT icecore.guard(name) FROM unnest(ARRAY['token', 'audit', 'quota', 'used']) AS name;
-- Tokens and limits may be there before the space is; they are taken away with it all the same.
SELECT icecore.belong('used');
-- The owner's own functions look across spaces; a transaction of a space does not work as the owner.
CREATE POLICY looked_up ON icecore.token TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY kept ON icecore.audit TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY looked_up ON icecore.quota FOR SELECT TO CURRENT_USER USING (true);
CREATE POLICY looked_up ON icecore.used TO CURRENT_USER USING (true) WITH CHECK (true);
CREATE POLICY weighed ON icecore.document FOR SELECT TO CURRENT_USER USING (true);

-- Whoever has named a space does not look beyond it.
CREATE FUNCTION icecore.stand_outside() RETURNS void LANGUAGE plpgsql STABLE
    AS $$ BEGIN
        IF icecore.this_space() IS NOT NULL THEN
            RAISE EXCEPTION 'a transaction of one space asks about others' USING ERRCODE = 'insufficient_privilege';
        END IF;
    END $$;

-- What the token with that hash is good for, if it is good. That it was used is noted, once a minute at most.
CREATE FUNCTION icecore.token_shown(shown bytea) RETURNS TABLE (token_id text, space text, scopes text[], expires timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    DECLARE found record; BEGIN
        PERFORM icecore.stand_outside();
        SELECT * INTO found FROM icecore.token
            WHERE hash = shown AND revoked IS NULL AND (expires IS NULL OR expires > now());
        IF found.token_id IS NULL THEN RETURN; END IF;
        IF found.used IS NULL OR found.used < now() - interval '1 minute' THEN
            UPDATE icecore.token SET used = now() WHERE space_id = found.space_id AND token_id = found.token_id;
        END IF;
        RETURN QUERY SELECT found.token_id, found.space, found.scopes, found.expires;
    END $$;

-- The tokens of a home, of one of its spaces, or the one of that id, the newest first: whatever is known but the hash.
CREATE FUNCTION icecore.tokens(home text, which text, called text, most bigint) RETURNS TABLE (token_id text, space text, label text,
        scopes text[], made timestamptz, expires timestamptz, revoked timestamptz, used timestamptz)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        RETURN QUERY SELECT token_id, space, label, scopes, made, expires, revoked, used FROM icecore.token
            WHERE (space = home OR starts_with(space, home || '/')) AND (which IS NULL OR space = which)
                AND (called IS NULL OR token_id = called) ORDER BY made DESC, token_id LIMIT most;
    END $$;

-- Notes what was done, by many and in many spaces at once.
CREATE FUNCTION icecore.note_deeds(spaces uuid[], at timestamptz[], names text[], tokens text[], doors text[], who text[], verbs text[],
        what text[], status integer[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ BEGIN
        PERFORM icecore.stand_outside();
        INSERT INTO icecore.audit (space_id, at, space, token, door, who, verb, what, status)
            SELECT * FROM unnest(spaces, at, names, tokens, doors, who, verbs, what, status);
    END $$;

-- What was done, the newest first: in one space of a home, or in all of them.
CREATE FUNCTION icecore.deeds(home text, which uuid, since timestamptz, most bigint) RETURNS TABLE (number bigint, at timestamptz,
        space text, token text, door text, who text, verb text, what text, status integer)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        IF which IS NULL THEN
            RETURN QUERY SELECT number, at, space, token, door, who, verb, what, status FROM icecore.audit
                WHERE (since IS NULL OR at >= since) AND (space = home OR starts_with(space, home || '/')) ORDER BY at DESC, number DESC LIMIT most;
        ELSE
            RETURN QUERY SELECT number, at, space, token, door, who, verb, what, status FROM icecore.audit
                WHERE space_id = which AND (since IS NULL OR at >= since) ORDER BY number DESC LIMIT most;
        END IF;
    END $$;

-- How much a space may do and has done today.
CREATE FUNCTION icecore.standing(which uuid, home uuid) RETURNS TABLE (requests_per_minute bigint, messages_per_day bigint, most_bytes bigint,
        model_tokens_per_day bigint, messages bigint, model_tokens bigint, bytes bigint)
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ #variable_conflict use_column
    BEGIN
        PERFORM icecore.stand_outside();
        RETURN QUERY SELECT coalesce(own.requests_per_minute, every.requests_per_minute), coalesce(own.messages_per_day, every.messages_per_day),
                coalesce(own.bytes, every.bytes), coalesce(own.model_tokens_per_day, every.model_tokens_per_day),
                coalesce(used.messages, 0), coalesce(used.model_tokens, 0),
                (SELECT coalesce(sum(length), 0)::bigint FROM icecore.document WHERE space_id = which)
            FROM (SELECT) AS one
            LEFT JOIN icecore.quota AS own ON own.space_id = which
            LEFT JOIN icecore.quota AS every ON every.space_id = home
            LEFT JOIN icecore.used ON used.space_id = which AND used.day = current_date;
    END $$;

-- Counts what models have read and written for a space.
CREATE FUNCTION icecore.spend(spaces uuid[], tokens bigint[]) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog
    AS $$ DECLARE spent record; BEGIN
        PERFORM icecore.stand_outside();
        FOR spent IN SELECT new.space_id, sum(new.many) AS many FROM unnest(spaces, tokens) AS new (space_id, many) GROUP BY 1 ORDER BY 1 LOOP
            BEGIN
                INSERT INTO icecore.used AS kept (space_id, model_tokens) VALUES (spent.space_id, spent.many)
                    ON CONFLICT (space_id, day) DO UPDATE SET model_tokens = kept.model_tokens + excluded.model_tokens;
            EXCEPTION WHEN foreign_key_violation THEN
                -- It was taken away meanwhile, and so is what it has cost. The others are counted all the same.
                NULL;
            END;
        END LOOP;
    END $$;

GRANT USAGE ON SEQUENCE icecore.deed TO icecore_app;
GRANT SELECT, INSERT ON icecore.token, icecore.audit TO icecore_app;
GRANT UPDATE (expires, revoked) ON icecore.token TO icecore_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON icecore.quota TO icecore_app;
GRANT SELECT, INSERT, UPDATE ON icecore.used TO icecore_app;
