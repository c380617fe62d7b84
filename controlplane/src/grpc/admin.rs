//! The Admin service: each call is one line here and one function in the file of its noun.

mod backend;
mod explain;
mod key;
mod route;
mod session;
mod status;
mod toggle;
mod watch;

use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use router_proto::v1;
use router_proto::v1::admin_server::Admin;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status};

use crate::error::AdminError;
use crate::fleet::Fleet;

/// Serves operators.
pub struct AdminService {
    /// The state.
    pub fleet: Arc<Fleet>,
    /// Runs changes to their end.
    pub tracker: TaskTracker,
    /// When this process started.
    pub started: Instant,
}

impl AdminService {
    /// Carries a change out to its end, also when its caller goes away or gives up in the middle: what was stored must be
    /// taken up too.
    async fn change<T, F>(&self, change: impl FnOnce(Arc<Fleet>) -> F + Send) -> Result<Response<T>, Status>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, AdminError>> + Send + 'static,
    {
        let ended = self.tracker.spawn(change(Arc::clone(&self.fleet))).await;
        reply(ended.unwrap_or(Err(AdminError::Unfinished)))
    }
}

/// Wraps an answer, or turns an error into a status.
fn reply<T>(result: Result<T, AdminError>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(Status::from)
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn apply(&self, request: Request<v1::ApplyRequest>) -> Result<Response<v1::ApplyReply>, Status> {
        self.change(|fleet| async move { route::apply(&fleet, request.into_inner()).await }).await
    }

    async fn export(&self, request: Request<v1::ExportRequest>) -> Result<Response<v1::ExportReply>, Status> {
        reply(route::export(&self.fleet, &request.into_inner()).await)
    }

    async fn list_routes(
        &self,
        request: Request<v1::ListRoutesRequest>,
    ) -> Result<Response<v1::ListRoutesReply>, Status> {
        reply(route::list(&self.fleet, &request.into_inner()))
    }

    async fn remove_route(
        &self,
        request: Request<v1::RemoveRouteRequest>,
    ) -> Result<Response<v1::RemoveRouteReply>, Status> {
        self.change(|fleet| async move { route::remove(&fleet, &request.into_inner()).await }).await
    }

    async fn set_route(&self, request: Request<v1::SetRouteRequest>) -> Result<Response<v1::SetRouteReply>, Status> {
        self.change(|fleet| async move { route::set(&fleet, request.into_inner()).await }).await
    }

    async fn set_toggle(&self, request: Request<v1::SetToggleRequest>) -> Result<Response<v1::SetToggleReply>, Status> {
        self.change(|fleet| async move { toggle::set(&fleet, &request.into_inner()).await }).await
    }

    async fn explain(&self, request: Request<v1::ExplainRequest>) -> Result<Response<v1::ExplainReply>, Status> {
        reply(explain::explain(&self.fleet, request.into_inner()))
    }

    async fn add_backend(
        &self,
        request: Request<v1::AddBackendRequest>,
    ) -> Result<Response<v1::AddBackendReply>, Status> {
        self.change(|fleet| async move { backend::add(&fleet, request.into_inner()).await }).await
    }

    async fn set_backend(
        &self,
        request: Request<v1::SetBackendRequest>,
    ) -> Result<Response<v1::SetBackendReply>, Status> {
        self.change(|fleet| async move { backend::set(&fleet, request.into_inner()).await }).await
    }

    async fn remove_backend(
        &self,
        request: Request<v1::RemoveBackendRequest>,
    ) -> Result<Response<v1::RemoveBackendReply>, Status> {
        self.change(|fleet| async move { backend::remove(&fleet, &request.into_inner()).await }).await
    }

    async fn set_drain(&self, request: Request<v1::SetDrainRequest>) -> Result<Response<v1::SetDrainReply>, Status> {
        self.change(|fleet| async move { backend::set_drain(&fleet, request.into_inner()).await }).await
    }

    async fn set_ban(&self, request: Request<v1::SetBanRequest>) -> Result<Response<v1::SetBanReply>, Status> {
        self.change(|fleet| async move { backend::set_ban(&fleet, request.into_inner()).await }).await
    }

    type WatchBackendsStream = Pin<Box<dyn Stream<Item = Result<v1::BackendStates, Status>> + Send>>;

    async fn watch_backends(
        &self,
        request: Request<v1::WatchBackendsRequest>,
    ) -> Result<Response<Self::WatchBackendsStream>, Status> {
        let selector = request.into_inner().selector.unwrap_or_default();
        let selected = backend::select(&self.fleet, &selector).await?;
        Ok(Response::new(Box::pin(watch::states_stream(Arc::clone(&self.fleet), selected))))
    }

    async fn list_sessions(
        &self,
        request: Request<v1::ListSessionsRequest>,
    ) -> Result<Response<v1::ListSessionsReply>, Status> {
        reply(session::list(&self.fleet, &request.into_inner()).await)
    }

    async fn forget_sessions(
        &self,
        request: Request<v1::ForgetSessionsRequest>,
    ) -> Result<Response<v1::ForgetSessionsReply>, Status> {
        self.change(|fleet| async move { session::forget(&fleet, &request.into_inner()).await }).await
    }

    async fn add_key(&self, request: Request<v1::AddKeyRequest>) -> Result<Response<v1::AddKeyReply>, Status> {
        self.change(|fleet| async move { key::add(&fleet, &request.into_inner()).await }).await
    }

    async fn list_keys(&self, _: Request<v1::ListKeysRequest>) -> Result<Response<v1::ListKeysReply>, Status> {
        Ok(Response::new(key::list(&self.fleet)))
    }

    async fn find_keys(&self, request: Request<v1::FindKeysRequest>) -> Result<Response<v1::FindKeysReply>, Status> {
        reply(key::find(&self.fleet, request.into_inner()))
    }

    async fn revoke_key(&self, request: Request<v1::RevokeKeyRequest>) -> Result<Response<v1::RevokeKeyReply>, Status> {
        self.change(|fleet| async move { key::revoke(&fleet, &request.into_inner()).await }).await
    }

    async fn get_status(&self, _: Request<v1::GetStatusRequest>) -> Result<Response<v1::GetStatusReply>, Status> {
        Ok(Response::new(status::status(&self.fleet, self.started.elapsed())))
    }
}
