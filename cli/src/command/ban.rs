//! `routerctl ban`, `unban`.

use std::time::Duration;

use router_proto::v1;

use crate::args::{Selector, length};
use crate::client::Admin;
use crate::failure::Outcome;
use crate::output::Out;
use crate::output::json::BackendListing;

/// Arguments of `ban`.
#[derive(Debug, clap::Args)]
pub(crate) struct BanArgs {
    #[command(flatten)]
    selector: Selector,
    /// How long, for instance 90s or 30m [default: the route's `health_ban_ttl`].
    #[arg(long = "for", value_name = "TIME", value_parser = length)]
    length: Option<Duration>,
}

/// Arguments of `unban`.
#[derive(Debug, clap::Args)]
pub(crate) struct UnbanArgs {
    #[command(flatten)]
    selector: Selector,
}

/// Takes backends out.
pub(crate) async fn ban(args: BanArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let ttl_ms = args.length.map_or(0, |length| u64::try_from(length.as_millis()).unwrap_or(u64::MAX));
    set(v1::SetBanRequest { selector: Some(args.selector.into()), ban: true, ttl_ms }, admin, out).await
}

/// Takes them back in.
pub(crate) async fn unban(args: UnbanArgs, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    set(v1::SetBanRequest { selector: Some(args.selector.into()), ban: false, ttl_ms: 0 }, admin, out).await
}

async fn set(request: v1::SetBanRequest, admin: &mut Admin, out: &mut Out<'_>) -> Outcome {
    let answer = admin.rpc.set_ban(request).await;
    let reply = admin.answer(answer)?;
    out.answer(&BackendListing::from(reply.backends))
}
