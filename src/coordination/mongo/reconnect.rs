//! Reconnects to a server that does not answer.

use super::diagnosis;
use super::documents::{Collections, OtherRing};
use super::process::{LIMIT, ProcessState};
use crate::config::MongoPlace;
use crate::fs::poll::jittered;
use mongodb::Client;
use mongodb::error::Error;
use mongodb::options::ServerAddress;
use std::sync::atomic::Ordering;
use std::sync::{PoisonError, Weak};
use std::time::Duration;

/// Interval between two attempts to reach the server.
const PROBE: Duration = Duration::from_millis(500);

/// Polls the server until it answers or the connection is dropped.
pub struct Reconnect {
    pub state: Weak<ProcessState>,
    /// `None` while the ring of the store is not known.
    pub collections: Option<Collections>,
    pub place: MongoPlace,
    pub shown: String,
}

impl Reconnect {
    /// Runs until the server answers or the connection is dropped.
    pub async fn run(self) {
        let mut fresh = false;
        loop {
            tokio::time::sleep(jittered(PROBE)).await;
            let Some(state) = self.state.upgrade() else { return };
            // After a time-out, connections that look intact may be dead, so the next attempt makes
            // new ones.
            let database = match fresh.then(|| Client::with_options(state.options.clone())) {
                Some(Ok(client)) => client.database(&self.place.database),
                _ => state.database(),
            };
            let hosts = state.options.hosts.clone();
            drop(state);
            let asked = async {
                match &self.collections {
                    Some(collections) => collections.on(&database, &self.place).hold().await,
                    None => database.run_command(mongodb::bson::doc! { "ping": 1 }).await.map(drop),
                }
            };
            let asked = match tokio::time::timeout(LIMIT, asked).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(Some(self.describe(&error, &hosts).await)),
                Err(_) => Err(None),
            };
            let Some(state) = self.state.upgrade() else { return };
            match asked {
                Ok(()) => {
                    *state.database.lock().unwrap_or_else(PoisonError::into_inner) = database;
                    state.away.store(false, Ordering::Release);
                    if state.log().logged_now {
                        tracing::info!("{} answers again", self.shown);
                    }
                    return;
                }
                Err(Some(why)) => {
                    state.log().why = why;
                    fresh = false;
                }
                Err(None) => fresh = true,
            }
        }
    }

    /// Returns why the server cannot be used, without passwords.
    async fn describe(&self, error: &Error, hosts: &[ServerAddress]) -> String {
        match error.get_custom() {
            Some(OtherRing(other)) => format!("the place belongs to another ring (id {})", other.id),
            None => self.place.scrub(&diagnosis::of_reconnect(error, hosts).await),
        }
    }
}
