//! The backend state file (gateway.md §9), for scripts and older readers:
//!
//! ```json
//! {"backends": {"19001": {"healthy": true, "draining": false, "inflight": 3}},
//!  "active_ports": [19001], "active_port": 19001, "updated_unix_ms": 1700000000000}
//! ```
//!
//! A backend is named by its port, or by `host:port` where two of the route share one. `active_ports` are those that take new
//! requests now; `active_port` is one of them, the same for as long as it is active, and does not mean that everything runs
//! there. Backends that left the route are listed, as draining, until their last request ends. The state that an orderly end
//! leaves has no active port; `last_active_port` is there only then, for the next start.

use std::collections::{BTreeMap, BTreeSet};

use router_policy::ids::BackendId;
use router_proto::v1;
use serde_json::{Map, Value as Json, json};

/// What the file says, but for the time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BackendStates {
    backends: BTreeMap<String, (bool, bool, u32)>,
    active_ports: BTreeSet<u16>,
    active_port: Option<u16>,
    /// The active port until the router stopped.
    last_active_port: Option<u16>,
}

impl BackendStates {
    /// From a route's backends. `last` is the active port that the file named before.
    pub fn new(states: &[v1::BackendState], last: Option<u16>) -> Self {
        let port = |state: &v1::BackendState| BackendId::new(&state.address).map_or(0, |id| id.port());
        let mut used: BTreeMap<u16, usize> = BTreeMap::new();
        for state in states {
            *used.entry(port(state)).or_default() += 1;
        }
        let mut all = Self::default();
        for state in states {
            let condition = state.condition.unwrap_or_default();
            let port = port(state);
            let name = if used.get(&port) == Some(&1) { port.to_string() } else { state.address.clone() };
            let is_draining = condition.draining || condition.removed;
            all.backends.insert(name, (!condition.unhealthy, is_draining, state.in_flight));
            if !condition.unhealthy && !is_draining && !condition.banned {
                all.active_ports.insert(port);
            }
        }
        all.active_port =
            last.filter(|port| all.active_ports.contains(port)).or_else(|| all.active_ports.first().copied());
        all
    }

    /// The same when the router is gone: nothing is active.
    #[must_use]
    pub fn stopped(mut self) -> Self {
        self.last_active_port = self.active_port.take();
        self.active_ports.clear();
        self
    }

    /// One of the active ports.
    pub fn active_port(&self) -> Option<u16> {
        self.active_port
    }

    /// The file's text.
    pub fn print(&self, updated_unix_ms: u64) -> String {
        let backends: Map<String, Json> = self
            .backends
            .iter()
            .map(|(name, (healthy, draining, inflight))| {
                (name.clone(), json!({"healthy": healthy, "draining": draining, "inflight": inflight}))
            })
            .collect();
        let mut fields = Map::new();
        let mut field = |name: &str, value: Json| fields.insert(name.to_owned(), value);
        field("backends", Json::Object(backends));
        field("active_ports", json!(self.active_ports));
        field("active_port", json!(self.active_port));
        field("updated_unix_ms", json!(updated_unix_ms));
        if let Some(port) = self.last_active_port {
            field("last_active_port", json!(port));
        }
        format!("{}\n", Json::Object(fields))
    }
}

/// The active port that a file of an earlier start names.
pub fn last_active_port(bytes: &[u8]) -> Option<u16> {
    let json: Json = serde_json::from_slice(bytes).ok()?;
    let port = |field| json.get(field).and_then(Json::as_u64).and_then(|port| port.try_into().ok());
    port("active_port").or_else(|| port("last_active_port"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(address: &str, in_flight: u32, condition: v1::Condition) -> v1::BackendState {
        let address = address.to_owned();
        v1::BackendState { address, in_flight, condition: Some(condition), ..v1::BackendState::default() }
    }

    #[test]
    fn active_are_those_that_nothing_stands_in_the_way_of() {
        let fine = v1::Condition::default();
        let states = [
            state("a:1", 3, fine),
            state("a:2", 1, v1::Condition { draining: true, ..fine }),
            state("a:3", 0, v1::Condition { unhealthy: true, ..fine }),
            state("a:4", 0, v1::Condition { banned: true, ..fine }),
            state("a:5", 2, v1::Condition { removed: true, ..fine }),
            state("a:6", 0, fine),
        ];
        let all = BackendStates::new(&states, Some(6));
        let json: Json = serde_json::from_str(&all.print(7)).unwrap();
        let expected = json!({
            "backends": {
                "1": {"healthy": true, "draining": false, "inflight": 3},
                "2": {"healthy": true, "draining": true, "inflight": 1},
                "3": {"healthy": false, "draining": false, "inflight": 0},
                "4": {"healthy": true, "draining": false, "inflight": 0},
                "5": {"healthy": true, "draining": true, "inflight": 2},
                "6": {"healthy": true, "draining": false, "inflight": 0},
            },
            "active_ports": [1, 6], "active_port": 6, "updated_unix_ms": 7,
        });
        assert_eq!(json, expected);
        assert_eq!(last_active_port(all.print(7).as_bytes()), Some(6));
    }

    #[test]
    fn the_active_port_stays_while_it_is_active() {
        let fine = v1::Condition::default();
        let two = [state("a:1", 0, fine), state("a:2", 0, fine)];
        assert_eq!(BackendStates::new(&two, None).active_port(), Some(1));
        assert_eq!(BackendStates::new(&two, Some(2)).active_port(), Some(2));
        assert_eq!(BackendStates::new(&two[..1], Some(2)).active_port(), Some(1));
        let nobody = BackendStates::new(&[], Some(2));
        assert_eq!(nobody.active_port(), None);
        assert!(nobody.print(1).contains(r#""active_port":null"#), "{}", nobody.print(1));
        assert_eq!(last_active_port(nobody.print(1).as_bytes()), None);
        let stopped = BackendStates::new(&two, Some(2)).stopped().print(1);
        let json: Json = serde_json::from_str(&stopped).unwrap();
        assert_eq!((&json["active_ports"], &json["active_port"]), (&json!([]), &Json::Null));
        assert_eq!(json["backends"].as_object().unwrap().len(), 2);
        assert_eq!(last_active_port(stopped.as_bytes()), Some(2), "the next start goes on with it");
    }

    #[test]
    fn backends_that_share_a_port_have_their_whole_name() {
        let fine = v1::Condition::default();
        let out = v1::Condition { draining: true, ..fine };
        let all = BackendStates::new(&[state("a:1", 0, fine), state("b:1", 5, out), state("a:2", 0, out)], None);
        let json: Json = serde_json::from_str(&all.print(1)).unwrap();
        let names: Vec<_> = json["backends"].as_object().unwrap().keys().cloned().collect();
        assert_eq!(names, ["2", "a:1", "b:1"]);
        assert_eq!(json["active_ports"], json!([1]));
    }
}
