//! How the tables come to be: steps that are taken once each, in order, and never back.

use icecore_domain::hash::Hash;
use tokio_postgres::error::SqlState;

use super::{Postgres, broke, forsake, judge, silent, within};
use crate::{Error, Result};

/// Every step there is, with how many of them a program has to know at least to work with the
/// tables afterwards. One that was released is never changed, and one that comes after a release
/// leaves the programs of that release at work.
const STEPS: &[(&str, i32, &str)] = &[
    ("home", 6, include_str!("migrations/0001_home.sql")),
    ("history", 6, include_str!("migrations/0002_history.sql")),
    ("search", 6, include_str!("migrations/0003_search.sql")),
    ("access", 6, include_str!("migrations/0004_access.sql")),
    ("jobs", 6, include_str!("migrations/0005_jobs.sql")),
    ("order", 6, include_str!("migrations/0006_order.sql")),
    ("walls", 6, include_str!("migrations/0007_walls.sql")),
];

/// How many steps this program knows. Every transaction says it, and the tables refuse one that
/// knows too few.
pub(super) const KNOWN_STEPS: usize = STEPS.len();

/// The step that gives everything to `icecore_owner`. Those after it are taken as that role.
const OWNER_STEP: i32 = 7;

/// Whoever takes steps holds this lock, so that several processes may start at once.
const LOCK: i64 = 0x1ce_c03e;

/// A step on the way to the tables that this program works with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The how manieth, from 1.
    pub number: i32,
    /// What it is about.
    pub name: &'static str,
}

/// What the database was found to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// How many steps were taken already.
    pub taken: i32,
    /// Those that are to be taken.
    pub due: Vec<Step>,
}

fn fingerprint(sql: &str) -> String {
    Hash::of(sql.as_bytes()).to_string()
}

fn steps_after(taken: i32) -> Vec<Step> {
    let all = STEPS.iter().zip(1..).map(|((name, ..), number)| Step { number, name });
    all.filter(|step| step.number > taken).collect()
}

impl Postgres {
    /// How far the tables are.
    pub async fn plan(&self) -> Result<Plan> {
        let client = self.client().await?;
        let planned = within(self.threads()?, self.beginning(), self.plan_by(&client)).await;
        planned.unwrap_or_else(|| {
            forsake(&self.pool, client);
            Err(silent(self.beginning()))
        })
    }

    async fn plan_by(&self, client: &deadpool_postgres::Object) -> Result<Plan> {
        let there = client
            .query_one("SELECT to_regclass('icecore.migration') IS NOT NULL", &[])
            .await
            .map_err(broke)?;
        if !there.get::<_, bool>(0) {
            return Ok(Plan { taken: 0, due: steps_after(0) });
        }
        let rows = client
            .query("SELECT number, fingerprint FROM icecore.migration ORDER BY number", &[])
            .await
            .map_err(broke)?;
        for (row, (name, _, sql)) in rows.iter().zip(STEPS) {
            if row.get::<_, String>(1) != fingerprint(sql) {
                return Err(Error::Schema(format!(
                    "step `{name}` of its tables was taken by another version of this program"
                )));
            }
        }
        let taken = i32::try_from(rows.len()).unwrap_or(i32::MAX);
        if rows.len() > STEPS.len() {
            let row = client
                .query_one("SELECT max(least) FROM icecore.migration", &[])
                .await
                .map_err(broke)?;
            if usize::try_from(row.get::<_, i32>(0)).is_ok_and(|least| least > STEPS.len()) {
                return Err(Error::Newer(format!(
                    "its tables are newer ({taken} steps) than this program knows ({}); use the newer program",
                    STEPS.len()
                )));
            }
        }
        Ok(Plan { taken, due: steps_after(taken) })
    }

    /// Takes the steps that are due, each whole or not at all, and says which.
    pub async fn migrate(&self) -> Result<Vec<Step>> {
        self.take_steps_if(|_| true).await
    }

    /// Makes the tables where there are none. Those of an older program stay as they are: changing
    /// them is asked for by itself.
    pub async fn prepare(&self) -> Result<()> {
        self.take_steps_if(|plan| plan.taken == 0).await?;
        judge(&self.plan().await?)
    }

    /// Takes the steps that are due, if they are to be taken where that was found.
    async fn take_steps_if(&self, wanted: impl Fn(&Plan) -> bool + Send) -> Result<Vec<Step>> {
        let client = self.client().await?;
        client.execute("SELECT pg_advisory_lock($1)", &[&LOCK]).await.map_err(broke)?;
        let taken = async {
            // By the same connection: there may be no other.
            let plan = self.plan_by(&client).await?;
            if wanted(&plan) { self.take_steps(&client, plan).await } else { Ok(Vec::new()) }
        };
        let taken = taken.await;
        // If it cannot be given back, the connection is lost, and the lock with it.
        let _ = client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]).await;
        taken
    }

    async fn take_steps(
        &self,
        client: &deadpool_postgres::Object,
        plan: Plan,
    ) -> Result<Vec<Step>> {
        if !plan.due.is_empty()
            && let Err(error) = client.batch_execute(ROLES).await
        {
            return Err(self.unprepared(client, error).await);
        }
        for step in &plan.due {
            let Some((name, least, sql)) =
                usize::try_from(step.number - 1).ok().and_then(|at| STEPS.get(at))
            else {
                continue;
            };
            let taken = async {
                client.batch_execute("BEGIN").await?;
                if step.number >= OWNER_STEP {
                    client.batch_execute(JOIN_OWNER).await?;
                }
                if step.number > OWNER_STEP {
                    client.batch_execute("SET LOCAL ROLE icecore_owner").await?;
                }
                if step.number > 1 {
                    // Waits for the transactions that found the tables as they were, and lets no
                    // other begin before the step is there: so none of a program that the step
                    // makes too old is committed after it. It comes first, as in every other
                    // transaction, so that they never wait for each other.
                    client
                        .batch_execute("LOCK TABLE icecore.migration IN ACCESS EXCLUSIVE MODE")
                        .await?;
                }
                client.batch_execute(sql).await?;
                if step.number == OWNER_STEP {
                    client.batch_execute("SET LOCAL ROLE icecore_owner").await?;
                }
                client
                    .execute(
                        "INSERT INTO icecore.migration (number, name, fingerprint, least) VALUES ($1, $2, $3, $4)",
                        &[&step.number, name, &fingerprint(sql), least],
                    )
                    .await?;
                if step.number >= OWNER_STEP {
                    client.batch_execute(LEAVE_OWNER).await?;
                }
                client.batch_execute("COMMIT").await
            };
            if let Err(error) = taken.await {
                let _ = client.batch_execute("ROLLBACK").await;
                let why = format!(
                    "step {} (`{name}`) of its tables failed and was taken back: {}",
                    step.number,
                    super::said(&error)
                );
                return Err(match error.code().map(|code| code.code()) {
                    Some("42501") => Error::Unwelcome {
                        place: self.place.clone(),
                        why: format!("{why}. Its tables are made by whoever owns it"),
                    },
                    _ => Error::Schema(why),
                });
            }
        }
        Ok(plan.due)
    }

    /// What somebody else has to do before the steps. Roles are the whole cluster's: for a second
    /// database in it only memberships are missing.
    async fn unprepared(
        &self,
        client: &deadpool_postgres::Object,
        error: tokio_postgres::Error,
    ) -> Error {
        if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return broke(error);
        }
        let asked = format!(
            "SELECT current_user::text, role, EXISTS (SELECT FROM pg_roles WHERE rolname = role) FROM unnest(ARRAY['{}']) AS role \
             WHERE CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN NOT pg_has_role(current_user, role, 'MEMBER') ELSE true END",
            OWN_ROLES.join("', '")
        );
        let rows = match client.query(&asked, &[]).await {
            Ok(rows) => rows,
            Err(error) => return broke(error),
        };
        let (mut missing, mut commands) = (Vec::new(), Vec::new());
        for row in &rows {
            let (user, role, is_there) =
                (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, bool>(2));
            if is_there {
                missing.push(format!("`{user}` is no member of the role `{role}`, which is there"));
            } else {
                missing.push(format!("the role `{role}` is not there"));
                commands.push(format!("CREATE ROLE {role} NOLOGIN NOBYPASSRLS"));
            }
            commands.push(format!("GRANT {role} TO \"{}\"", user.replace('"', "\"\"")));
        }
        let why = format!(
            "{}, and {}. Let an administrator run `{}`",
            missing.join(", "),
            super::said(&error),
            commands.join("; ")
        );
        Error::Unwelcome { place: self.place.clone(), why }
    }
}

/// The roles that are icecore's own: the one that every transaction takes, and the one that owns
/// the tables. Neither logs in.
const OWN_ROLES: [&str; 2] = ["icecore_app", "icecore_owner"];

/// What has to be there before steps are taken: both roles, and that of every transaction for
/// whoever takes the steps.
const ROLES: &str = "
DO $$ DECLARE role text; BEGIN
    FOREACH role IN ARRAY ARRAY['icecore_app', 'icecore_owner'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE', role);
        END IF;
    END LOOP;
    -- Since 16 whoever makes a role without being a superuser may give it to others, but not take it.
    IF NOT pg_has_role(current_user, 'icecore_app', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_app TO %I', current_user);
    END IF;
    -- Whether the tables can be given to their owner is found out before the first of them is made.
    IF NOT pg_has_role(current_user, 'icecore_owner', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_owner TO %I', current_user);
        EXECUTE format('REVOKE icecore_owner FROM %I', current_user);
    END IF;
END $$;";

/// Makes the login a member of the owner for this transaction, if it is none.
const JOIN_OWNER: &str = "
DO $$ BEGIN
    IF NOT pg_has_role(current_user, 'icecore_owner', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_owner TO %I', current_user);
        PERFORM set_config('icecore.joined', 'yes', true);
    END IF;
END $$;";

/// Ends a membership that [`JOIN_OWNER`] has begun.
const LEAVE_OWNER: &str = "
SET LOCAL ROLE NONE;
DO $$ BEGIN
    IF current_setting('icecore.joined', true) = 'yes' THEN
        EXECUTE format('REVOKE icecore_owner FROM %I', current_user);
    END IF;
END $$;";
