//! A mock inference engine: the part of a real engine that a router can see, without a model.
//!
//! It promises the wire shapes of `OpenAI` and Anthropic (streamed and not), a prefix cache that behaves like an engine's
//! (so that session affinity shows up as `cached_tokens`), settable delays and failures, and exact counts of what was in
//! flight. It never claims to be anything but a mock: `system_fingerprint` is `mock-engine`, `Server` is
//! `routerctl-mock-engine`. Any model name and any key are accepted. Used by `routerctl mock-engine`, by the demo, by the
//! end-to-end tests and by the load tool.

mod anthropic;
mod body;
mod control;
mod embeddings;
mod openai;
mod prefix_cache;
mod record;
mod request;
mod response;
mod serve;
mod sse;
mod state;
#[cfg(test)]
mod tests;
mod text;

use std::io::Write as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::state::{Engine, FailMode, Settings};

/// Longest delay that can be set, in milliseconds: one hour.
const MAX_PAUSE_MS: u64 = 3_600_000;

/// Most output tokens of one answer.
const MAX_TOKENS: u32 = 1_000_000;

/// How long a shutdown waits for answers in progress before it cuts them.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

/// Pause after a failed `accept`, so that a lack of file descriptors does not become a busy loop.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The part of `--help` that says how a running engine is steered.
const CONTROL_HELP: &str = "\
While it runs: POST /_mock/set changes what its body names (ttft_ms, token_gap_ms, tokens, max_model_len, \
cached_speedup, always_usage, answer_bytes, fail, health: ok|fail|hang, record) and GET /_mock/settings shows it; POST \
/_mock/hold keeps answers back until POST /_mock/release; GET /_mock/stats counts requests, tokens and the most that were \
in flight at once; GET /_mock/recorded shows the last requests, as many as `record` says (64 MiB at most); POST \
/_mock/reset starts the counts anew, POST /_mock/flush empties the prefix cache.

    curl -d '{\"token_gap_ms\": 80}' http://127.0.0.1:19001/_mock/set
    curl -X POST http://127.0.0.1:19001/_mock/hold
    curl http://127.0.0.1:19001/_mock/stats";

/// A mock inference engine for demos, tests and load measurements; it runs no model.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = CONTROL_HELP)]
pub(crate) struct MockEngineArgs {
    /// Address to listen on; port 0 takes a free one, the line on stdout says which.
    #[arg(long, value_name = "IP:PORT", env = "ROUTER_MOCK_LISTEN", default_value = "127.0.0.1:19001")]
    pub(crate) listen: SocketAddr,
    /// Name under which `/v1/models` lists the one model.
    #[arg(long, value_name = "NAME", env = "ROUTER_MOCK_MODEL", default_value = "mock-model")]
    pub(crate) model: String,
    /// Longest prompt in tokens (4 bytes of text each), stated in `/v1/models`; a longer one is refused with 400.
    #[arg(long, value_name = "TOKENS", env = "ROUTER_MOCK_MAX_MODEL_LEN", default_value_t = 32_768)]
    pub(crate) max_model_len: u32,
    /// Time to the first token of an uncached prompt, in milliseconds.
    #[arg(
        long,
        value_name = "MS",
        env = "ROUTER_MOCK_TTFT_MS",
        default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_PAUSE_MS))]
    pub(crate) ttft_ms: u64,
    /// Time between two tokens, in milliseconds.
    #[arg(
        long,
        alias = "token-ms",
        value_name = "MS",
        env = "ROUTER_MOCK_TOKEN_GAP_MS",
        default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=MAX_PAUSE_MS))]
    pub(crate) token_gap_ms: u64,
    /// Output tokens of one answer, unless the request's `max_tokens` is lower.
    #[arg(long, value_name = "N", env = "ROUTER_MOCK_TOKENS", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_TOKENS)))]
    pub(crate) tokens: u32,
    /// Share of the first-token time that a wholly cached prompt saves, 0 to 1; half cached saves half of it.
    #[arg(long, value_name = "SHARE", env = "ROUTER_MOCK_CACHED_SPEEDUP", default_value_t = 0.0, value_parser = share)]
    pub(crate) cached_speedup: f64,
    /// Size of the prefix cache in blocks of 16 tokens (64 bytes of text); 0 caches nothing.
    #[arg(long, value_name = "BLOCKS", env = "ROUTER_MOCK_CACHE_BLOCKS", default_value_t = 16_384)]
    pub(crate) cache_blocks: usize,
    /// Answer every request with one fixed JSON body of exactly this many bytes, unread and unstreamed (for load tests);
    /// 0 answers properly.
    #[arg(long, value_name = "BYTES", env = "ROUTER_MOCK_ANSWER_BYTES", default_value_t = 0)]
    pub(crate) answer_bytes: usize,
    /// End every stream of the OpenAI APIs with a usage chunk, also when `stream_options.include_usage` does not ask for it.
    #[arg(long, env = "ROUTER_MOCK_ALWAYS_USAGE", value_name = "true|false", num_args = 0..=1, require_equals = true,
          default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) always_usage: bool,
    /// Fail on purpose.
    #[arg(long, value_name = "MODE", env = "ROUTER_MOCK_FAIL", value_enum, default_value_t = FailMode::None)]
    pub(crate) fail: FailMode,
}

/// Parses a number from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| format!("a number from 0 to 1 expected, got {text:?}"))?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(format!("a number from 0 to 1 expected, got {text:?}")) }
}

/// Binds the port, says so in one line on stdout, and serves until `shutdown` resolves.
pub(crate) async fn run(args: MockEngineArgs, shutdown: impl Future<Output = ()> + Send) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen).await.with_context(|| format!("--listen {}", args.listen))?;
    let address = listener.local_addr().context("mock engine: read the bound address")?;
    let engine = engine(&args, address)?;
    {
        let mut stdout = std::io::stdout().lock();
        writeln!(stdout, "listening role=mock-engine http={address}")
            .and_then(|()| stdout.flush())
            .context("mock engine: write to stdout")?;
    }
    tracing::info!(%address, model = args.model, "mock engine started");
    serve(&listener, &engine, shutdown).await;
    tracing::info!(%address, "mock engine stopped");
    Ok(())
}

/// Builds the engine's state; fails on an `answer_bytes` that no JSON answer fits into.
fn engine(args: &MockEngineArgs, address: SocketAddr) -> anyhow::Result<Arc<Engine>> {
    let settings = Settings {
        ttft_ms: args.ttft_ms,
        token_gap_ms: args.token_gap_ms,
        tokens: args.tokens,
        max_model_len: args.max_model_len,
        cached_speedup: args.cached_speedup,
        always_usage: args.always_usage,
        fail: args.fail,
        ..Settings::default()
    };
    let engine = Engine::new(args.model.clone(), args.cache_blocks, address, settings);
    engine.set_answer_bytes(args.answer_bytes).map_err(anyhow::Error::msg)?;
    Ok(Arc::new(engine))
}

/// Accepts until `shutdown`, then gives open answers [`SHUTDOWN_GRACE`] to end.
async fn serve(listener: &TcpListener, engine: &Arc<Engine>, shutdown: impl Future<Output = ()> + Send) {
    let connections = TaskTracker::new();
    let stop = CancellationToken::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                // A connection's end or error concerns its client only.
                connections.spawn(serve_connection(socket, Arc::clone(engine), stop.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
            }
        }
    }
    stop.cancel();
    connections.close();
    connections.wait().await;
}

/// Serves one connection, HTTP/1.1 or HTTP/2 with prior knowledge, until it ends or `stop` and the grace have passed.
async fn serve_connection(socket: TcpStream, engine: Arc<Engine>, stop: CancellationToken) {
    // Tokens are small writes that must leave at once; without the option they only leave later.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "set TCP_NODELAY");
    }
    let builder = auto::Builder::new(TokioExecutor::new());
    let service = hyper::service::service_fn(move |request| serve::answer(Arc::clone(&engine), request));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stop.cancelled() => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        match tokio::time::timeout(SHUTDOWN_GRACE, connection).await {
            Ok(ended) => ended,
            Err(_) => return,
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error, "connection ended early");
    }
}
