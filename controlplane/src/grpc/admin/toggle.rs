//! Run-time switches and limits.

use std::time::Duration;

use router_proto::v1;

use crate::error::AdminError;
use crate::fleet::{Fleet, ToggleChange};

pub(super) async fn set(fleet: &Fleet, request: &v1::SetToggleRequest) -> Result<v1::SetToggleReply, AdminError> {
    let change = ToggleChange {
        route: &request.route,
        name: &request.name,
        model: &request.model,
        value: &request.value,
        ttl: Duration::from_millis(request.ttl_ms),
        is_reset: request.reset,
    };
    let (toggles, note) = fleet.set_toggle(change).await?;
    Ok(v1::SetToggleReply { toggles, note })
}
