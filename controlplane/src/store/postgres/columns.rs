//! Rows as one array per column, as `unnest` takes them.

use super::Step;
use crate::store::row::{mark_text, to_i64};
use crate::store::{BindingRow, FlowRow, LeaseRow, MarkRow, PayloadCountsRow, StoreError, ToggleRow};

#[derive(Default)]
pub(super) struct BindingArrays {
    routes: Vec<String>,
    fingerprints: Vec<Vec<u8>>,
    backends: Vec<String>,
    dp_ranks: Vec<Option<i64>>,
    created: Vec<i64>,
    last_used: Vec<i64>,
    requests: Vec<i64>,
    moves: Vec<i64>,
}

impl BindingArrays {
    pub(super) fn new(rows: &[&BindingRow]) -> Result<Self, StoreError> {
        let mut arrays = Self::default();
        for row in rows {
            arrays.routes.push(row.route.as_str().to_owned());
            arrays.fingerprints.push(row.fingerprint.0.to_vec());
            arrays.backends.push(row.backend.as_str().to_owned());
            arrays.dp_ranks.push(row.dp_rank.map(i64::from));
            arrays.created.push(to_i64(row.created_unix_ms)?);
            arrays.last_used.push(to_i64(row.last_used_unix_ms)?);
            arrays.requests.push(to_i64(row.requests)?);
            arrays.moves.push(i64::from(row.moves));
        }
        Ok(arrays)
    }

    pub(super) fn bind(self, query: Step<'_>) -> Step<'_> {
        query
            .bind(self.routes)
            .bind(self.fingerprints)
            .bind(self.backends)
            .bind(self.dp_ranks)
            .bind(self.created)
            .bind(self.last_used)
            .bind(self.requests)
            .bind(self.moves)
    }
}

#[derive(Default)]
pub(super) struct LeaseArrays {
    leases: Vec<i64>,
    routes: Vec<String>,
    backends: Vec<String>,
    replicas: Vec<String>,
    fingerprints: Vec<Option<Vec<u8>>>,
    granted: Vec<i64>,
}

impl LeaseArrays {
    pub(super) fn new(rows: &[&LeaseRow]) -> Result<Self, StoreError> {
        let mut arrays = Self::default();
        for row in rows {
            arrays.leases.push(to_i64(row.lease.0)?);
            arrays.routes.push(row.route.as_str().to_owned());
            arrays.backends.push(row.backend.as_str().to_owned());
            arrays.replicas.push(row.replica.clone());
            arrays.fingerprints.push(row.fingerprint.map(|fingerprint| fingerprint.0.to_vec()));
            arrays.granted.push(to_i64(row.granted_unix_ms)?);
        }
        Ok(arrays)
    }

    pub(super) fn bind(self, query: Step<'_>) -> Step<'_> {
        query
            .bind(self.leases)
            .bind(self.routes)
            .bind(self.backends)
            .bind(self.replicas)
            .bind(self.fingerprints)
            .bind(self.granted)
    }
}

#[derive(Default)]
pub(super) struct MarkArrays {
    routes: Vec<String>,
    backends: Vec<String>,
    kinds: Vec<&'static str>,
    until: Vec<Option<i64>>,
    reasons: Vec<String>,
}

impl MarkArrays {
    pub(super) fn new(rows: &[&MarkRow]) -> Result<Self, StoreError> {
        let mut arrays = Self::default();
        for row in rows {
            arrays.routes.push(row.route.as_str().to_owned());
            arrays.backends.push(row.backend.as_str().to_owned());
            arrays.kinds.push(mark_text(row.kind));
            arrays.until.push(row.until_unix_ms.map(to_i64).transpose()?);
            arrays.reasons.push(row.reason.clone());
        }
        Ok(arrays)
    }

    pub(super) fn bind(self, query: Step<'_>) -> Step<'_> {
        query.bind(self.routes).bind(self.backends).bind(self.kinds).bind(self.until).bind(self.reasons)
    }
}

pub(super) fn flow_rows<'q>(query: Step<'q>, rows: &[&FlowRow]) -> Result<Step<'q>, StoreError> {
    let routes: Vec<_> = rows.iter().map(|row| row.route.as_str().to_owned()).collect();
    let models: Vec<_> = rows.iter().map(|row| row.model.clone()).collect();
    let states: Vec<_> = rows.iter().map(|row| row.state.clone()).collect();
    let updated = rows.iter().map(|row| to_i64(row.updated_unix_ms)).collect::<Result<Vec<_>, _>>()?;
    Ok(query.bind(routes).bind(models).bind(states).bind(updated))
}

pub(super) fn payload_rows<'q>(query: Step<'q>, rows: &[&PayloadCountsRow]) -> Result<Step<'q>, StoreError> {
    let routes: Vec<_> = rows.iter().map(|row| row.route.as_str().to_owned()).collect();
    let states: Vec<_> = rows.iter().map(|row| row.state.clone()).collect();
    let updated = rows.iter().map(|row| to_i64(row.updated_unix_ms)).collect::<Result<Vec<_>, _>>()?;
    Ok(query.bind(routes).bind(states).bind(updated))
}

pub(super) fn toggle_rows<'q>(query: Step<'q>, rows: &[&ToggleRow]) -> Result<Step<'q>, StoreError> {
    let routes: Vec<_> = rows.iter().map(|row| row.route.as_str().to_owned()).collect();
    let names: Vec<_> = rows.iter().map(|row| row.name.clone()).collect();
    let models: Vec<_> = rows.iter().map(|row| row.model.clone()).collect();
    let values: Vec<_> = rows.iter().map(|row| row.value.clone()).collect();
    let until = rows.iter().map(|row| row.until_unix_ms.map(to_i64).transpose()).collect::<Result<Vec<_>, _>>()?;
    let standing: Vec<_> = rows.iter().map(|row| row.standing.clone()).collect();
    Ok(query.bind(routes).bind(names).bind(models).bind(values).bind(until).bind(standing))
}
