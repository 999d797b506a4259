//! The records of moves in their ConfigMap. Each write replaces the version that was read, so that a registry that does
//! not lead any more writes nothing.

use anyhow::{Context as _, Result};
use fpga_registry_api::{
    HELD_KEY, HeldMove, MOVES_CONFIG_MAP, MOVES_KEY, MoveOutcome, MoveRecord, MoveRecords,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// The records, as they were read or written last.
#[derive(Debug)]
pub struct Records {
    api: Api<ConfigMap>,
    object: ConfigMap,
    moves: MoveRecords,
    held: Vec<HeldMove>,
}

impl Records {
    /// Reads the records in `namespace`; none where there is no ConfigMap yet.
    ///
    /// # Errors
    /// The API server does not answer, or the records can't be understood: without them no bound could be kept.
    pub async fn read(client: &Client, namespace: &str) -> Result<Self> {
        let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let object = api.get_opt(MOVES_CONFIG_MAP).await.context("the records of moves can't be read")?;
        let object = object.unwrap_or_default();
        let (moves, held) = (parse(&object, MOVES_KEY)?, parse(&object, HELD_KEY)?);
        Ok(Self { api, object, moves, held })
    }

    /// The moves, the oldest first.
    #[must_use]
    pub fn moves(&self) -> &[MoveRecord] {
        &self.moves.0
    }

    /// Adds a record and returns its index. Old records go, other than those that `must_stay`.
    ///
    /// # Errors
    /// Somebody else has changed the records, or the API server refuses the write.
    pub async fn push(
        &mut self,
        record: MoveRecord,
        must_stay: impl Fn(&MoveRecord) -> bool,
    ) -> Result<usize> {
        self.moves.trim(must_stay);
        self.moves.0.push(record);
        self.write().await?;
        Ok(self.moves.0.len() - 1)
    }

    /// Sets what became of a move.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub async fn set_outcome(&mut self, index: usize, outcome: MoveOutcome) -> Result<()> {
        if let Some(record) = self.moves.0.get_mut(index) {
            record.outcome = outcome;
        }
        self.write().await
    }

    /// Sets who stays for now, and writes it if it has changed.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub async fn set_held(&mut self, held: Vec<HeldMove>) -> Result<()> {
        if self.held == held {
            return Ok(());
        }
        self.held = held;
        self.write().await
    }

    async fn write(&mut self) -> Result<()> {
        let data = self.object.data.get_or_insert_default();
        data.insert(MOVES_KEY.to_owned(), serde_json::to_string(&self.moves)?);
        data.insert(HELD_KEY.to_owned(), serde_json::to_string(&self.held)?);
        let params = PostParams::default();
        let written = if self.object.metadata.resource_version.is_none() {
            self.object.metadata.name = Some(MOVES_CONFIG_MAP.to_owned());
            self.api.create(&params, &self.object).await
        } else {
            self.api.replace(MOVES_CONFIG_MAP, &params, &self.object).await
        };
        self.object = written.context("the records of moves are not written")?;
        Ok(())
    }
}

fn parse<T: DeserializeOwned + Default>(object: &ConfigMap, key: &str) -> Result<T> {
    match object.data.iter().flatten().find(|(name, _)| *name == key) {
        None => Ok(T::default()),
        Some((_, text)) => serde_json::from_str(text).with_context(|| {
            format!(
                "{key} of the ConfigMap {MOVES_CONFIG_MAP} can't be understood; delete the key to begin anew"
            )
        }),
    }
}
