//! The Admin service as verbs use it: one connection, the operator's token, and errors that say what to do next.

use std::path::Path;
use std::time::Duration;

use router_proto::v1::admin_client::AdminClient;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status};

use crate::args::Connect;
use crate::failure::{Failure, Kind};

/// Where a control plane listens unless told otherwise.
pub(crate) const DEFAULT_URL: &str = "http://127.0.0.1:7400";

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Until an answer (of a stream: its start) must be there.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest answer: a list of very many sessions, an export of very many routes.
const ANSWER_MAX: usize = 256 << 20;

/// Adds the token to each call.
#[derive(Clone)]
pub(crate) struct Bearer(Option<MetadataValue<Ascii>>);

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.0 {
            request.metadata_mut().insert("authorization", token.clone());
        }
        Ok(request)
    }
}

/// A connection to the control plane.
pub(crate) struct Admin {
    /// The generated client.
    pub(crate) rpc: AdminClient<InterceptedService<Channel, Bearer>>,
    url: String,
}

impl Admin {
    /// Connects, so that an unreachable control plane is told apart from one that refuses.
    pub(crate) async fn connect(connect: &Connect) -> Result<Self, Failure> {
        let url = full_url(connect.control_plane.as_deref().unwrap_or(DEFAULT_URL))?;
        let bearer = Bearer(bearer(connect.token_file.as_deref())?);
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|_| Failure::usage(format!("--control-plane {url}: not a URL; expected http://HOST:PORT")))?
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .tcp_nodelay(true);
        let channel = endpoint.connect().await.map_err(|error| unreachable(&url, &root_cause(&error)))?;
        let rpc = AdminClient::with_interceptor(channel, bearer).max_decoding_message_size(ANSWER_MAX);
        Ok(Self { rpc, url })
    }

    /// The message inside an answer, or the failure that its status means.
    pub(crate) fn answer<T>(&self, answer: Result<Response<T>, Status>) -> Result<T, Failure> {
        answer.map(Response::into_inner).map_err(|status| self.failure(&status))
    }

    /// What a status means to an operator.
    pub(crate) fn failure(&self, status: &Status) -> Failure {
        let message = status.message();
        match status.code() {
            Code::NotFound => Failure::failed(message).hint(noun_hint(message)),
            Code::Unauthenticated | Code::PermissionDenied => {
                Failure::failed(format!("{} refuses: {message}", self.url))
                    .hint("pass --token-file FILE or set ROUTER_TOKEN")
            }
            Code::Unimplemented => Failure::failed(format!(
                "{} does not know this call: it is not a control plane's gRPC port (7400 unless told otherwise), or older than \
                 this routerctl ({})",
                self.url,
                env!("CARGO_PKG_VERSION")
            )),
            // The control plane itself speaks.
            Code::Unavailable if message.starts_with("database") => Failure::new(Kind::Unavailable, message)
                .hint("nothing was changed; try again when the database answers"),
            Code::Unavailable => unreachable(&self.url, message),
            Code::DeadlineExceeded | Code::Cancelled => Failure::failed(format!(
                "the control plane at {} gave no answer within {} s",
                self.url,
                ANSWER_TIMEOUT.as_secs()
            ))
            .hint("look at the result with `routerctl status` before you try again"),
            // These carry the control plane's own complaint or advice.
            Code::InvalidArgument | Code::AlreadyExists | Code::FailedPrecondition | Code::Aborted => {
                Failure::failed(message)
            }
            // An HTTP server that knows no gRPC.
            Code::Internal if message.starts_with("protocol error") => Failure::failed(format!(
                "{} does not speak the control plane's gRPC: its port is 7400 unless told otherwise",
                self.url
            ))
            .hint("pass --control-plane URL"),
            code => Failure::failed(format!("{}: {message}", code.description())),
        }
    }
}

/// How to find the names that exist.
fn noun_hint(message: &str) -> &'static str {
    let verbs = [
        ("key", "`routerctl key list` shows the keys"),
        ("session", "`routerctl session list` shows the sessions"),
        ("backend", "`routerctl backend list` shows the backends"),
    ];
    // The noun alone: a route may be called `keys`.
    let noun = message.strip_prefix("no ").unwrap_or(message).split_whitespace().next().unwrap_or_default();
    let found = verbs.into_iter().find(|(known, _)| *known == noun);
    found.map_or("`routerctl route list` shows the routes", |(_, hint)| hint)
}

fn unreachable(url: &str, cause: &str) -> Failure {
    Failure::new(Kind::Unavailable, format!("control plane unreachable at {url}: {cause}"))
        .hint("start it with `routerctl controlplane` or pass --control-plane URL")
}

/// The innermost cause: the outer ones only say "transport error".
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// `HOST:PORT` becomes `http://HOST:PORT`.
fn full_url(text: &str) -> Result<String, Failure> {
    match text.split_once("://") {
        None => Ok(format!("http://{text}")),
        Some(("http", _)) => Ok(text.to_owned()),
        Some((scheme, _)) => Err(Failure::usage(format!(
            "--control-plane {text}: scheme {scheme} is not supported; expected http://HOST:PORT"
        ))),
    }
}

/// The header that shows the token.
fn bearer(token_file: Option<&Path>) -> Result<Option<MetadataValue<Ascii>>, Failure> {
    let Some(token) = crate::token::read(token_file).map_err(Failure::usage)? else {
        return Ok(None);
    };
    let parsed = format!("Bearer {token}").parse();
    let mut value: MetadataValue<Ascii> =
        parsed.map_err(|_| Failure::usage("token: expected printable ASCII without line breaks"))?;
    value.set_sensitive(true);
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_urls() {
        assert_eq!(full_url("127.0.0.1:7400").unwrap(), "http://127.0.0.1:7400");
        assert_eq!(full_url("http://h:1").unwrap(), "http://h:1");
        assert_eq!(full_url("https://h:1").unwrap_err().kind, Kind::Usage);
    }

    #[test]
    fn what_is_missing_decides_the_hint() {
        assert!(noun_hint("no route 'keys'").contains("route list"));
        assert!(noun_hint("no backend with port 19003 in route keys").contains("backend list"));
        assert!(noun_hint("no backend '127.0.0.1:1'").contains("backend list"));
        assert!(noun_hint("no key 'laptop'").contains("key list"));
    }

    #[tokio::test]
    async fn an_unreachable_control_plane_has_its_own_code_and_advice() {
        // Bound and dropped: nothing listens there.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let connect = Connect { control_plane: Some(address.to_string()), token_file: None };
        let Err(failure) = Admin::connect(&connect).await else { panic!("connected to nothing") };
        assert_eq!(failure.kind, Kind::Unavailable);
        assert!(failure.message.contains("start it with `routerctl controlplane`"), "{failure:?}");
        assert!(failure.message.contains("refused"), "{failure:?}");
    }
}
