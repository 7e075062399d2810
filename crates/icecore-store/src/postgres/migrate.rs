//! Schema migrations: steps that are applied once, in order, and never undone.

use icecore_domain::hash::Hash;
use tokio_postgres::error::SqlState;

use super::errors::error_text;
use super::transaction::discard_connection;
use super::{Postgres, check_plan, map_query_error, timeout_error, within};
use crate::{Error, Result};

/// All steps: name, the number of steps a program must know to work with the tables afterwards, and
/// SQL. A released step is never changed, and a step after a release must keep programs of that
/// release working.
const MIGRATIONS: &[(&str, i32, &str)] = &[
    ("home", 6, include_str!("migrations/0001_home.sql")),
    ("history", 6, include_str!("migrations/0002_history.sql")),
    ("search", 6, include_str!("migrations/0003_search.sql")),
    ("access", 6, include_str!("migrations/0004_access.sql")),
    ("jobs", 6, include_str!("migrations/0005_jobs.sql")),
    ("order", 6, include_str!("migrations/0006_order.sql")),
    ("walls", 6, include_str!("migrations/0007_walls.sql")),
];

/// The number of steps that this program knows. Every transaction sends it, and the tables reject a
/// program that knows too few.
pub(super) const MIGRATION_COUNT: usize = MIGRATIONS.len();

/// The step that gives everything to `icecore_owner`. Later steps run as that role.
const OWNER_STEP: i32 = 7;

/// The advisory lock of a migration, so that several processes may start at once.
const MIGRATION_LOCK_ID: i64 = 0x1ce_c03e;

/// A migration step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationStep {
    /// Its number, from 1.
    pub number: i32,
    pub name: &'static str,
}

/// The migration state of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationPlan {
    /// The number of applied steps.
    pub applied: i32,
    pub pending: Vec<MigrationStep>,
}

fn sql_hash(sql: &str) -> String {
    Hash::of(sql.as_bytes()).to_string()
}

fn steps_after(taken: i32) -> Vec<MigrationStep> {
    let all = MIGRATIONS.iter().zip(1..).map(|((name, ..), number)| MigrationStep { number, name });
    all.filter(|step| step.number > taken).collect()
}

impl Postgres {
    /// The migration state.
    pub async fn migration_plan(&self) -> Result<MigrationPlan> {
        let client = self.connection().await?;
        let planned =
            within(self.runtime_handle()?, self.begin_timeout(), self.read_plan(&client)).await;
        planned.unwrap_or_else(|| {
            discard_connection(&self.pool, client);
            Err(timeout_error(self.begin_timeout()))
        })
    }

    async fn read_plan(&self, client: &deadpool_postgres::Object) -> Result<MigrationPlan> {
        let there = client
            .query_one("SELECT to_regclass('icecore.migration') IS NOT NULL", &[])
            .await
            .map_err(map_query_error)?;
        if !there.get::<_, bool>(0) {
            return Ok(MigrationPlan { applied: 0, pending: steps_after(0) });
        }
        let rows = client
            .query("SELECT number, fingerprint FROM icecore.migration ORDER BY number", &[])
            .await
            .map_err(map_query_error)?;
        for (row, (name, _, sql)) in rows.iter().zip(MIGRATIONS) {
            if row.get::<_, String>(1) != sql_hash(sql) {
                return Err(Error::schema(format!(
                    "step `{name}` of its tables was applied by another version of this program"
                )));
            }
        }
        let taken = i32::try_from(rows.len()).unwrap_or(i32::MAX);
        if rows.len() > MIGRATIONS.len() {
            let row = client
                .query_one("SELECT max(least) FROM icecore.migration", &[])
                .await
                .map_err(map_query_error)?;
            if usize::try_from(row.get::<_, i32>(0)).is_ok_and(|least| least > MIGRATIONS.len()) {
                return Err(Error::newer_schema(format!(
                    "its tables are newer ({taken} steps) than this program knows ({}); use the newer program",
                    MIGRATIONS.len()
                )));
            }
        }
        Ok(MigrationPlan { applied: taken, pending: steps_after(taken) })
    }

    /// Applies pending steps, each in a transaction, and returns them.
    pub async fn migrate(&self) -> Result<Vec<MigrationStep>> {
        self.apply_if(|_| true).await
    }

    /// Creates the tables of an empty database. Existing older ones stay: a migration is a separate
    /// command.
    pub async fn create_tables(&self) -> Result<()> {
        self.apply_if(|plan| plan.applied == 0).await?;
        check_plan(&self.migration_plan().await?)
    }

    /// Applies pending steps, if `wanted` agrees with the state found under the lock.
    async fn apply_if(
        &self,
        wanted: impl Fn(&MigrationPlan) -> bool + Send,
    ) -> Result<Vec<MigrationStep>> {
        let client = self.connection().await?;
        client
            .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK_ID])
            .await
            .map_err(map_query_error)?;
        let taken = async {
            // On the same connection: the pool may have no other.
            let plan = self.read_plan(&client).await?;
            if wanted(&plan) { self.apply_steps(&client, plan).await } else { Ok(Vec::new()) }
        };
        let taken = taken.await;
        // If the unlock fails, the connection is broken, and the lock with it.
        let _ = client.execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK_ID]).await;
        taken
    }

    async fn apply_steps(
        &self,
        client: &deadpool_postgres::Object,
        plan: MigrationPlan,
    ) -> Result<Vec<MigrationStep>> {
        if !plan.pending.is_empty()
            && let Err(error) = client.batch_execute(ROLES).await
        {
            return Err(self.missing_roles(client, error).await);
        }
        for step in &plan.pending {
            let Some((name, least, sql)) =
                usize::try_from(step.number - 1).ok().and_then(|at| MIGRATIONS.get(at))
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
                    // Waits for transactions that found the tables unmigrated, and blocks new ones
                    // until the step is committed, so that no outdated program commits afterwards.
                    // Taken first, as in every transaction, which prevents deadlocks.
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
                        &[&step.number, name, &sql_hash(sql), least],
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
                    "step {} (`{name}`) of its tables failed and was rolled back: {}",
                    step.number,
                    error_text(&error)
                );
                return Err(match error.code().map(|code| code.code()) {
                    Some("42501") => Error::access_denied(
                        self.display_name.clone(),
                        format!("{why}. The owner of the database creates its tables"),
                    ),
                    _ => Error::schema(why),
                });
            }
        }
        Ok(plan.pending)
    }

    /// What an administrator has to do before the steps. Roles belong to the whole cluster: for a
    /// second database only memberships are missing.
    async fn missing_roles(
        &self,
        client: &deadpool_postgres::Object,
        error: tokio_postgres::Error,
    ) -> Error {
        if error.code() != Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            return map_query_error(error);
        }
        let asked = format!(
            "SELECT current_user::text, role, EXISTS (SELECT FROM pg_roles WHERE rolname = role) FROM unnest(ARRAY['{}']) AS role \
             WHERE CASE WHEN EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN NOT pg_has_role(current_user, role, 'MEMBER') ELSE true END",
            OWN_ROLES.join("', '")
        );
        let rows = match client.query(&asked, &[]).await {
            Ok(rows) => rows,
            Err(error) => return map_query_error(error),
        };
        let (mut missing, mut commands) = (Vec::new(), Vec::new());
        for row in &rows {
            let (user, role, is_there) =
                (row.get::<_, String>(0), row.get::<_, String>(1), row.get::<_, bool>(2));
            if is_there {
                missing.push(format!("`{user}` is not a member of the existing role `{role}`"));
            } else {
                missing.push(format!("the role `{role}` does not exist"));
                commands.push(format!("CREATE ROLE {role} NOLOGIN NOBYPASSRLS"));
            }
            commands.push(format!("GRANT {role} TO \"{}\"", user.replace('"', "\"\"")));
        }
        let why = format!(
            "{}, and {}. Let an administrator run `{}`",
            missing.join(", "),
            error_text(&error),
            commands.join("; ")
        );
        Error::access_denied(self.display_name.clone(), why)
    }
}

/// The roles of icecore: that of every transaction, and the owner of the tables. Neither can log
/// in.
const OWN_ROLES: [&str; 2] = ["icecore_app", "icecore_owner"];

/// Requirements of the steps: both roles, and the transaction role for the migrating login.
const ROLES: &str = "
DO $$ DECLARE role text; BEGIN
    FOREACH role IN ARRAY ARRAY['icecore_app', 'icecore_owner'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE', role);
        END IF;
    END LOOP;
    -- Since 16 the creator of a role, unless a superuser, may grant it to others but is not a member.
    IF NOT pg_has_role(current_user, 'icecore_app', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_app TO %I', current_user);
    END IF;
    -- Check whether the tables can be handed to their owner before the first one is created.
    IF NOT pg_has_role(current_user, 'icecore_owner', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_owner TO %I', current_user);
        EXECUTE format('REVOKE icecore_owner FROM %I', current_user);
    END IF;
END $$;";

/// Makes the login a member of the owner for this transaction, unless it is one.
const JOIN_OWNER: &str = "
DO $$ BEGIN
    IF NOT pg_has_role(current_user, 'icecore_owner', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END) THEN
        EXECUTE format('GRANT icecore_owner TO %I', current_user);
        PERFORM set_config('icecore.joined', 'yes', true);
    END IF;
END $$;";

/// Ends a membership that [`JOIN_OWNER`] began.
const LEAVE_OWNER: &str = "
SET LOCAL ROLE NONE;
DO $$ BEGIN
    IF current_setting('icecore.joined', true) = 'yes' THEN
        EXECUTE format('REVOKE icecore_owner FROM %I', current_user);
    END IF;
END $$;";
