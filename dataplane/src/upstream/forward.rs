//! One try on one backend, up to the response's head. Knows connections and time limits, not leases or retries.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::Full;
use hyper::body::Incoming;
use router_policy::retry::Failure;

use super::client::{Conn, Pool};
use super::headers;
use super::stream::Silence;
use crate::metrics::Metrics;

/// What goes to every backend that is tried.
#[derive(Debug)]
pub(crate) struct Outbound {
    pub(crate) method: Method,
    /// Path and query, prefix taken off.
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Where this try goes.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// `host:port`
    pub(crate) backend: &'a Arc<str>,
    pub(crate) host: &'a HeaderValue,
    pub(crate) dp_rank: Option<u32>,
    pub(crate) connect_timeout: Duration,
}

impl Outbound {
    fn request(&self, target: &Target<'_>) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = Version::HTTP_11;
        *request.headers_mut() = self.headers.clone();
        headers::for_try(request.headers_mut(), target.host, target.dp_rank);
        request
    }

    /// Sends it. An idle connection that turns out dead before it gave a byte is replaced by a new one, once: the backend
    /// has closed it for idleness.
    pub(crate) async fn send(
        &self,
        pool: &Pool,
        target: Target<'_>,
        silence: &mut Silence,
        metrics: &Metrics,
    ) -> Result<(Response<Incoming>, Box<Conn>), Failure> {
        if let Some(mut idle) = pool.take(target.backend) {
            metrics.upstream_reused.inc();
            match self.send_on(&mut idle, &target, silence).await {
                Err(Attempt::Stale) => {}
                Err(Attempt::Failed(failure)) => return Err(failure),
                Ok(response) => return Ok((response, idle)),
            }
        }
        let opened = pool.open(target.backend, target.connect_timeout).await;
        let mut conn = opened.map_err(|error| {
            tracing::debug!(backend = %target.backend, %error, "connect to backend");
            Failure::Connect
        })?;
        metrics.upstream_opened.inc();
        match self.send_on(&mut conn, &target, silence).await {
            Ok(response) => Ok((response, conn)),
            Err(Attempt::Failed(failure)) => Err(failure),
            Err(Attempt::Stale) => Err(Failure::NoHead),
        }
    }

    async fn send_on(
        &self,
        conn: &mut Conn,
        target: &Target<'_>,
        silence: &mut Silence,
    ) -> Result<Response<Incoming>, Attempt> {
        let mut head = std::pin::pin!(conn.send(self.request(target)));
        let answered = poll_fn(|cx| match head.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => silence.poll(cx).map(|()| None),
        });
        let answer = answered.await;
        silence.broken();
        match answer {
            None => Err(Attempt::Failed(Failure::HeaderTimeout)),
            Some(Err(no_head)) if no_head.was_stale => Err(Attempt::Stale),
            Some(Err(_)) => Err(Attempt::Failed(Failure::NoHead)),
            // The router asks for no upgrade; one that comes all the same is no HTTP answer.
            Some(Ok(response)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                Err(Attempt::Failed(Failure::NoHead))
            }
            Some(Ok(response)) => Ok(response),
        }
    }
}

enum Attempt {
    /// The connection had served before and gave no byte now.
    Stale,
    Failed(Failure),
}
