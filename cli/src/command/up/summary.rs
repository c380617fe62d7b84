//! What `up` says when everything runs: where, what to try, what to do first.

use router_proto::v1;

/// The route that a first request would go to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    /// `/v1`, or `/NAME/v1` without a default route.
    path: String,
    /// Requests are answered with 401 unless they show a key.
    needs_key: bool,
}

impl Target {
    /// The default route, else the first; `None` when there is no route. `is_loopback`: where the replicas listen.
    pub(super) fn of(status: &v1::GetStatusReply, is_loopback: bool) -> Option<Self> {
        let route = status.routes.iter().find(|route| route.is_default).or(status.routes.first())?;
        let auth = route.options.iter().find(|option| option.name == "auth").map(|option| option.value.as_str());
        let has_key = status.keys > 0;
        let needs_key = match auth {
            Some("required") => true,
            Some("off") => false,
            Some("open-if-unconfigured") => has_key,
            _ => has_key || !is_loopback,
        };
        let path = if route.is_default { "/v1".to_owned() } else { format!("/{}/v1", route.name) };
        Some(Self { path, needs_key })
    }
}

/// The whole text.
pub(super) fn text(grpc: &str, http: &str, traffic: &[String], target: Option<&Target>, has_key: bool) -> String {
    let flag = if grpc.ends_with(":7400") { String::new() } else { format!(" --control-plane {grpc}") };
    let first = traffic.first().map(String::as_str).unwrap_or_default();
    let next = match target {
        None => format!("add a route:\n  routerctl route add NAME --default --backend HOST:PORT{flag}\n"),
        Some(Target { path, needs_key }) => {
            let make = if *needs_key && !has_key {
                format!("every request needs a key and there is none yet; make one:\n  routerctl key add NAME{flag}\n")
            } else {
                String::new()
            };
            let header = if *needs_key { " -H 'Authorization: Bearer SECRET'" } else { "" };
            format!(
                "{make}try:\n  curl http://{first}{path}/chat/completions{header} -H 'Content-Type: application/json' \
                 -H 'X-Session-Id: me' \\\n    \
                 -d '{{\"model\": \"MODEL\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n"
            )
        }
    };
    let traffic = traffic.iter().map(|address| format!("http://{address}")).collect::<Vec<_>>().join(", ");
    format!(
        "\nup: control plane {grpc} (HTTP http://{http}), traffic on {traffic}\n{next}see:\n  routerctl status{flag}\nstop: Ctrl-C\n\n"
    )
}

/// What is wrong with the followed files; the last thing said, because it may mean that nobody is served.
pub(super) fn problems(files: &[v1::FileState]) -> String {
    let bad = files.iter().filter(|file| !file.problem.is_empty());
    bad.map(|file| format!("attention: --{} {}: {}\n\n", file.flag, file.path, file.problem)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(auth: &str, is_default: bool, keys: u32) -> v1::GetStatusReply {
        let auth = v1::OptionState { name: "auth".to_owned(), value: auth.to_owned(), is_set: false };
        let route =
            v1::RouteState { name: "chat".to_owned(), is_default, options: vec![auth], ..v1::RouteState::default() };
        v1::GetStatusReply { keys, routes: vec![route], ..v1::GetStatusReply::default() }
    }

    #[test]
    fn it_names_the_real_ports() {
        let target = Target::of(&status("auto", true, 0), true);
        let traffic = ["127.0.0.1:8080".to_owned()];
        let said = text("http://127.0.0.1:7400", "127.0.0.1:7480", &traffic, target.as_ref(), false);
        assert!(said.contains("curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type"), "{said}");
        assert!(said.contains("  routerctl status\n") && !said.contains("key"), "{said}");
        let said = text("http://127.0.0.1:41", "127.0.0.1:42", &[], None, false);
        assert!(said.contains("routerctl status --control-plane http://127.0.0.1:41"), "{said}");
        assert!(said.contains("routerctl route add"), "{said}");
    }

    #[test]
    fn a_bad_file_is_the_last_word() {
        let file = |problem: &str| v1::FileState {
            flag: "control-file".to_owned(),
            path: "a.json".to_owned(),
            problem: problem.to_owned(),
            ..v1::FileState::default()
        };
        assert_eq!(problems(&[file("")]), "");
        let said = problems(&[file(""), file("missing: admission is closed")]);
        assert_eq!(said, "attention: --control-file a.json: missing: admission is closed\n\n");
    }

    #[test]
    fn a_key_is_asked_for_where_it_is_needed_and_made_where_there_is_none() {
        let rows = [
            ("required", 0, true, true),
            ("auto", 0, true, false),
            ("auto", 0, false, true),
            ("auto", 1, true, true),
            ("open-if-unconfigured", 0, false, false),
            ("open-if-unconfigured", 1, true, true),
            ("off", 1, false, false),
        ];
        for (auth, keys, is_loopback, needs_key) in rows {
            let found = Target::of(&status(auth, true, keys), is_loopback);
            assert_eq!(found, Some(Target { path: "/v1".to_owned(), needs_key }), "{auth} {keys}");
        }
        let target = Target::of(&status("required", false, 0), true);
        let traffic = ["127.0.0.1:8080".to_owned()];
        let said = |has_key| text("http://127.0.0.1:7400", "127.0.0.1:7480", &traffic, target.as_ref(), has_key);
        assert_eq!(
            said(false),
            "
up: control plane http://127.0.0.1:7400 (HTTP http://127.0.0.1:7480), traffic on http://127.0.0.1:8080
every request needs a key and there is none yet; make one:
  routerctl key add NAME
try:
  curl http://127.0.0.1:8080/chat/v1/chat/completions -H 'Authorization: Bearer SECRET' -H 'Content-Type: application/json' \
             -H 'X-Session-Id: me' \\
    -d '{\"model\": \"MODEL\", \"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'
see:
  routerctl status
stop: Ctrl-C

"
        );
        assert!(!said(true).contains("key add") && said(true).contains("Bearer"));
    }
}
