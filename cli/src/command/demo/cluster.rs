//! The demo's system: its processes, and where they listen.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::time::Duration;

use router_proto::v1;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use super::LIMIT;
use super::chat::Http;
use crate::args::Connect;
use crate::client::Admin;
use crate::command::up::database_url;
use crate::failure::{Failure, Kind};
use crate::supervise::{self, Lines, Supervisor};

/// Route whose sessions are bound. It is the default route too.
pub(crate) const BOUND: &str = "chat";

/// Route over the same engines without affinity.
pub(crate) const SCATTERED: &str = "scatter";

/// Until a process must have announced itself.
const PATIENCE: Duration = Duration::from_secs(20);

const GRACE: Duration = Duration::from_secs(10);

/// A mock engine.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    /// As in `X-Routed-Peer`.
    pub(crate) name: String,
    /// `host:port`.
    pub(crate) address: String,
}

/// The running system, seen from outside.
pub(crate) struct Cluster {
    /// `host:port` of each replica's traffic port.
    pub(crate) replicas: Vec<String>,
    /// The engines behind both routes.
    pub(crate) engines: Vec<Engine>,
    /// For the live drain.
    pub(crate) admin: Admin,
    /// For everything else.
    pub(crate) http: Http,
    pub(crate) grpc: String,
    pub(crate) web: String,
}

impl Cluster {
    /// Every address with its label.
    pub(crate) fn addresses(&self) -> Vec<(String, String)> {
        let mut all = vec![("control plane (gRPC)".to_owned(), self.grpc.clone())];
        all.push(("control plane (HTTP)".to_owned(), format!("http://{}", self.web)));
        let replicas = self.replicas.iter().enumerate();
        all.extend(replicas.map(|(index, address)| (format!("replica {}", index + 1), format!("http://{address}"))));
        all.extend(self.engines.iter().map(|engine| (engine.name.clone(), format!("http://{}", engine.address))));
        all
    }

    /// Sends the same control call to every mock engine.
    pub(crate) async fn tell_engines(&self, operation: &str, body: &Json) -> Result<(), Failure> {
        for engine in &self.engines {
            self.http.post(&format!("http://{}/_mock/{operation}", engine.address), body).await?;
        }
        Ok(())
    }

    /// What to try while it is left up.
    pub(crate) fn hints(&self) -> String {
        let engine = self.engines.first().map(|engine| engine.name.as_str()).unwrap_or_default();
        hints(&self.grpc, &self.replicas, engine)
    }
}

pub(crate) fn hints(grpc: &str, replicas: &[String], engine: &str) -> String {
    let urls: Vec<String> = replicas.iter().map(|address| format!("http://{address}")).collect();
    let urls = urls.join(" ");
    format!(
        "
The system stays up until Ctrl-C. One session through every replica (see X-Routed-Peer):
  for url in {urls}; do
    curl -si $url/v1/chat/completions -H 'Content-Type: application/json' -H 'X-Session-Id: me' \\
      -d '{{\"model\": \"mock-model\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'
  done
and:
  routerctl --control-plane {grpc} status
  routerctl --control-plane {grpc} session list
  routerctl --control-plane {grpc} drain --backend {engine} --wait
  routerctl --control-plane {grpc} undrain --backend {engine}
"
    )
}

/// The processes of the demo and the directory of their state and logs.
pub(crate) struct Processes {
    supervisor: Supervisor,
    dir: Option<TempDir>,
    shown_dir: String,
}

fn failed(error: &supervise::Error) -> Failure {
    Failure::failed(error.to_string())
}

impl Processes {
    /// Nothing started yet.
    pub(crate) fn new() -> Result<Self, Failure> {
        let complain = |what: &str, error: std::io::Error| Failure::failed(format!("{what}: {error}"));
        let executable = std::env::current_exe().map_err(|error| complain("find this program", error))?;
        // Private to this user: a temporary directory has mode 0700.
        let dir = tempfile::Builder::new()
            .prefix("routerctl-demo-")
            .tempdir()
            .map_err(|error| complain("make a temporary directory", error))?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(dir.path().join("log"))
            .map_err(|error| complain("open the log file", error))?;
        let supervisor = Supervisor::new(executable, Lines::new(std::io::sink()), Lines::new(log)).hermetic();
        let shown_dir = dir.path().display().to_string();
        Ok(Self { supervisor, dir: Some(dir), shown_dir })
    }

    /// Starts everything and waits until every engine takes requests.
    pub(crate) async fn start(&mut self, replicas: u16, engines: u16) -> Result<Cluster, Failure> {
        let database = database_url(&format!("{}/router.db", self.shown_dir));
        self.child(
            "controlplane",
            "controlplane",
            &[("grpc-listen", "127.0.0.1:0"), ("http-listen", "127.0.0.1:0"), ("database-url", &database)],
        )?;
        let engine_names: Vec<String> = (1..=engines).map(|number| format!("engine-{number}")).collect();
        for name in &engine_names {
            let flags = [
                ("listen", "127.0.0.1:0"),
                ("ttft-ms", "30"),
                ("token-gap-ms", "1"),
                ("tokens", "16"),
                ("cached-speedup", "0.8"),
            ];
            self.child(name, "mock-engine", &flags)?;
        }
        let mut engines = Vec::new();
        for name in engine_names {
            let address = self.address(&name, "http").await?;
            engines.push(Engine { name, address });
        }
        self.ready("controlplane").await?;
        let grpc = format!("http://{}", self.address("controlplane", "grpc").await?);
        let web = self.address("controlplane", "http").await?;
        let connect = Connect { control_plane: Some(grpc.clone()), token_file: None };
        let mut admin = Admin::connect(&connect).await?;
        let request =
            v1::ApplyRequest { document_json: routes(&engines).to_string(), create_only: true, ..Default::default() };
        let answer = admin.rpc.apply(request).await;
        admin.answer(answer)?;
        let names: Vec<String> = (1..=replicas).map(|number| format!("dataplane-{number}")).collect();
        for name in &names {
            let flags = [("listen", "127.0.0.1:0"), ("admin-listen", "127.0.0.1:0"), ("control-plane", &grpc)];
            self.child(name, "dataplane", &flags)?;
        }
        let mut addresses = Vec::new();
        for name in &names {
            self.ready(name).await?;
            addresses.push(self.address(name, "http").await?);
        }
        all_ready(&mut admin).await?;
        Ok(Cluster { replicas: addresses, engines, admin, http: Http::new(), grpc, web })
    }

    /// Resolves when a process ends by itself.
    pub(crate) async fn first_end(&mut self) -> supervise::Error {
        self.supervisor.first_end().await
    }

    /// Stops everything: traffic first.
    pub(crate) async fn stop(&mut self) {
        for prefix in ["dataplane", "controlplane", "engine"] {
            for name in self.supervisor.stop(prefix, GRACE).await {
                tracing::warn!(name, "killed: it did not stop in time");
            }
        }
    }

    /// Leaves the directory where it is and says where.
    pub(crate) fn keep_logs(&mut self) -> String {
        if let Some(dir) = self.dir.take() {
            drop(dir.keep());
        }
        format!("{}/log", self.shown_dir)
    }

    fn child(&mut self, name: &str, role: &str, flags: &[(&str, &str)]) -> Result<(), Failure> {
        let mut args: Vec<OsString> = vec!["--exit-on-stdin-eof".into(), role.into()];
        args.extend(flags.iter().map(|(flag, value)| OsString::from(format!("--{flag}={value}"))));
        self.supervisor.start(name, &args).map_err(|error| failed(&error))
    }

    async fn ready(&mut self, name: &str) -> Result<(), Failure> {
        self.supervisor.announced(name, "ready", PATIENCE).await.map(drop).map_err(|error| failed(&error))
    }

    async fn address(&mut self, name: &str, key: &'static str) -> Result<String, Failure> {
        self.supervisor.address(name, key, PATIENCE).await.map_err(|error| failed(&error))
    }
}

/// Both routes. The queue is long, so that a burst waits instead of being refused.
fn routes(engines: &[Engine]) -> Json {
    let backends: Vec<Json> =
        engines.iter().map(|engine| json!({"address": engine.address, "name": engine.name})).collect();
    let options = |affinity: &str| {
        json!({"affinity": affinity, "max_concurrency": LIMIT, "max_waiting": 1000, "queue_timeout": "30s",
            "health_check_interval": "500ms"})
    };
    json!({"routes": [
        {"name": BOUND, "default": true, "options": options("binding"), "backends": backends},
        {"name": SCATTERED, "options": options("off"), "backends": backends},
    ]})
}

/// Waits until nothing stands in the way of any engine, or says what does.
async fn all_ready(admin: &mut Admin) -> Result<(), Failure> {
    let mut reason = String::new();
    let waited = tokio::time::timeout(PATIENCE, async {
        for route in [BOUND, SCATTERED] {
            let selector = v1::BackendSelector { route: route.to_owned(), ..Default::default() };
            let answer = admin.rpc.watch_backends(v1::WatchBackendsRequest { selector: Some(selector) }).await;
            let mut states = admin.answer(answer)?;
            loop {
                let next = states.message().await.map_err(|status| admin.failure(&status))?;
                let now = next.ok_or_else(|| Failure::new(Kind::Unavailable, "the control plane ended the watch"))?;
                let is_out = |one: &&v1::BackendState| one.condition.unwrap_or_default() != v1::Condition::default();
                match now.backends.iter().find(is_out) {
                    None => break,
                    Some(out) => reason = format!("{} of route {route}: {}", out.name, out.reason),
                }
            }
        }
        Ok(())
    });
    waited.await.unwrap_or_else(|_| Err(Failure::failed(format!("an engine is not healthy in time: {reason}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routes_are_valid() {
        let engines: Vec<Engine> = (1..=2)
            .map(|number| Engine { name: format!("engine-{number}"), address: format!("127.0.0.1:{number}") })
            .collect();
        router_policy::route::parse_document(&routes(&engines)).unwrap();
    }
}
