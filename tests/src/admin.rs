//! Looks at the control plane's state through its Admin API. Operators' verbs are tested through `routerctl` itself.

use std::net::SocketAddr;

use anyhow::Context as _;
use router_proto::v1::admin_client::AdminClient;
use router_proto::v1::{
    GetStatusReply, GetStatusRequest, ListRoutesRequest, ListSessionsRequest, RouteState, SessionState,
};
use tonic::transport::Channel;

/// A connection to one control plane.
#[derive(Debug, Clone)]
pub struct Admin {
    client: AdminClient<Channel>,
}

impl Admin {
    /// Connects.
    ///
    /// # Errors
    /// When nobody listens.
    pub async fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let client = AdminClient::connect(format!("http://{address}")).await;
        Ok(Self { client: client.with_context(|| format!("connect to the control plane at {address}"))? })
    }

    /// The status of the whole.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn status(&self) -> anyhow::Result<GetStatusReply> {
        Ok(self.client.clone().get_status(GetStatusRequest {}).await.context("get status")?.into_inner())
    }

    /// One route.
    ///
    /// # Errors
    /// When it does not answer, or has no such route.
    pub async fn route(&self, name: &str) -> anyhow::Result<RouteState> {
        let ask = ListRoutesRequest { route: name.to_owned() };
        let reply = self.client.clone().list_routes(ask).await.context("list routes")?.into_inner();
        reply.routes.into_iter().next().with_context(|| format!("no route {name}"))
    }

    /// Every session, sorted by fingerprint.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn sessions(&self) -> anyhow::Result<Vec<SessionState>> {
        let ask = ListSessionsRequest { limit: 100_000, ..ListSessionsRequest::default() };
        let reply = self.client.clone().list_sessions(ask).await.context("list sessions")?.into_inner();
        let mut sessions = reply.sessions;
        sessions.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
        Ok(sessions)
    }

    /// Which backend each session is bound to: what must survive everything.
    ///
    /// # Errors
    /// As [`Admin::sessions`].
    pub async fn bindings(&self) -> anyhow::Result<Vec<(String, String)>> {
        let sessions = self.sessions().await?;
        Ok(sessions.into_iter().map(|session| (session.fingerprint, session.backend)).collect())
    }
}
