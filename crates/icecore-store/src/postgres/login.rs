//! The login of servers and workers: a member of `icecore_app` that owns nothing, so that it sees
//! no row before it has named a space.

use tokio_postgres::Client;

use super::{Postgres, address, check_plan, map_query_error};
use crate::{Error, Result};

impl Postgres {
    /// Creates the login that `address` names, or sets its password, and grants it the role that
    /// every transaction uses. Returns its name. Refuses an existing login that sees every space.
    pub async fn create_login(&self, address: &str) -> Result<String> {
        check_plan(&self.migration_plan().await?)?;
        let config = address::parse(address)?;
        let Some(user) = config.get_user() else {
            return Err(Error::address("the address names no user".into()));
        };
        let client = self.connection().await?;
        let is_there = client
            .query_opt("SELECT FROM pg_roles WHERE rolname = $1", &[&user])
            .await
            .map_err(map_query_error)?
            .is_some();
        if is_there && let Some(reason) = find_privilege(&client, user).await? {
            let why = format!(
                "the login `{user}` {reason}, so it sees every space. Name another user in the address of the servers"
            );
            return Err(Error::access_denied(self.display_name.clone(), why));
        }
        let verb = if is_there { "ALTER" } else { "CREATE" };
        let name = format!("\"{}\"", user.replace('"', "\"\""));
        // Hashed here, so that no server log shows the password. The hash contains no quote that
        // could end a literal.
        let hash = config.get_password().map(postgres_protocol::password::scram_sha_256);
        let password = hash.map(|hash| format!(" PASSWORD '{hash}'")).unwrap_or_default();
        let sql = format!(
            "BEGIN; {verb} ROLE {name} LOGIN{password}; GRANT icecore_app TO {name}; COMMIT"
        );
        if let Err(error) = client.batch_execute(&sql).await {
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(map_query_error(error));
        }
        Ok(user.to_owned())
    }

    /// The reason why the login of this address sees every space, as a phrase that follows its
    /// name; `None` if it does not.
    pub async fn login_privilege(&self) -> Result<Option<String>> {
        let client = self.connection().await?;
        let row =
            client.query_one("SELECT session_user::text", &[]).await.map_err(map_query_error)?;
        let user: String = row.get(0);
        Ok(find_privilege(&client, &user).await?.map(|reason| format!("`{user}` {reason}")))
    }
}

async fn find_privilege(client: &Client, user: &str) -> Result<Option<&'static str>> {
    const SQL: &str = "SELECT rolsuper, rolbypassrls, EXISTS (SELECT FROM pg_roles WHERE rolname = 'icecore_owner') \
        AND pg_has_role(oid, 'icecore_owner', 'MEMBER') FROM pg_roles WHERE rolname = $1";
    let Some(row) = client.query_opt(SQL, &[&user]).await.map_err(map_query_error)? else {
        return Ok(None);
    };
    Ok(match (row.get(0), row.get(1), row.get(2)) {
        (true, _, _) => Some("is a superuser"),
        (_, true, _) => Some("bypasses row-level security"),
        (_, _, true) => Some("is a member of `icecore_owner`, which owns the tables"),
        _ => None,
    })
}
