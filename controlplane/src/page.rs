//! The session router's status pages and switches (payloads.md §9, limits.md §12): one JSON object each, with its field names.
//! They tell the fleet's state, which each answer says: `scope: "fleet"` (`_429_status`, whose `scope` is another thing, has
//! `fleet: true`). A value that there isn't is a key that there isn't, never null. There are no shared dictionaries and no
//! workers here: `dict_declared` is always true, and `dict_capacity`, `dict_free_space` and `worker_id` are left out. Nor is
//! there a switch over all routes: `global_enabled` is always true.
//!
//! A page copies what it needs under the pool's lock and prints it afterwards. Pages that change something do so
//! for those only whom the replica vouches for (`CHANGES_ONLY_FROM`), through the same calls as operators.

mod answer;
mod backends;
mod control;
mod decision;
mod latency;
mod limit;
mod metrics;
mod options;
mod payload;
mod refusals;
mod session;

use std::sync::Arc;

use router_proto::v1;

use crate::fleet::Fleet;
use crate::pool::Pool;
use answer::Answer;

/// Why a change is refused with 403.
const CHANGES_ONLY_FROM: &str = "changes are taken from loopback only: by POST, on the admin port of a replica on this machine, \
                                 by its address or localhost, and through no proxy";

/// Why a page that is about a request's body alone has no answer here.
const ONLY_A_REPLICA: &str = "a replica answers this itself, for a route that it knows";

/// Every page, as an unknown one is answered.
const PAGES: [&str; 30] = [
    "_429_status",
    "_active_conns",
    "_active_conns_set",
    "_bodylog_status",
    "_bodylog_toggle",
    "_cch_strip_status",
    "_cch_strip_toggle",
    "_cch_test",
    "_cluster_avg",
    "_health_status",
    "_include_usage_toggle",
    "_kimi_normalize_toggle",
    "_rate_limit_status",
    "_rate_limit_toggle",
    "_reject_rules_status",
    "_reject_rules_toggle",
    "_route_debug",
    "_route_inspect",
    "_route_opts",
    "_route_state",
    "_session_prio_toggle",
    "_session_status",
    "_system_hoist_toggle",
    "_tps_limit",
    "_tps_status",
    "_tps_toggle",
    "_ttft_429_toggle",
    "_ttft_limit",
    "_ttft_status",
    "_ttft_toggle",
];

/// What a page is asked with.
struct Asked<'a> {
    fleet: &'a Fleet,
    pool: &'a Arc<Pool>,
    request: &'a v1::PageRequest,
}

impl Asked<'_> {
    fn route(&self) -> &str {
        &self.request.route
    }

    /// A parameter of the query.
    fn param(&self, name: &str) -> Option<&str> {
        self.request.query.get(name).map(String::as_str)
    }

    /// Whether a parameter is 1.
    fn is_set(&self, name: &str) -> bool {
        self.param(name) == Some("1")
    }
}

/// Answers one page.
pub async fn page(fleet: &Fleet, request: &v1::PageRequest) -> v1::PageReply {
    let Ok(pool) = fleet.pool(&request.route) else {
        return Answer::error(404, "unknown route").with("route", request.route.as_str()).reply();
    };
    let asked = Asked { fleet, pool: &pool, request };
    let answer = match request.page.as_str() {
        "_health_status" => backends::health(&asked),
        "_active_conns" => backends::active(&asked),
        "_cluster_avg" => backends::cluster_avg(&asked),
        "_route_state" => backends::route_state(&asked),
        "_route_debug" => decision::debug(&asked),
        "_route_inspect" => decision::inspect(&asked),
        "_ttft_status" => latency::ttft(&asked),
        "_tps_status" => latency::tps(&asked),
        "_429_status" => refusals::status(&asked).await,
        "_rate_limit_status" => refusals::rate_limit(&asked),
        "_route_opts" => options::options(&asked),
        "_session_status" => session::status(&asked),
        "_cch_test" => Answer::error(400, ONLY_A_REPLICA).with("route", asked.route()),
        page if payload::has(page) => payload::answer(&asked).await,
        "_active_conns_set"
        | "_ttft_toggle"
        | "_tps_toggle"
        | "_ttft_429_toggle"
        | "_ttft_limit"
        | "_tps_limit"
        | "_rate_limit_toggle"
        | "_session_prio_toggle"
            if !request.is_loopback =>
        {
            Answer::error(403, CHANGES_ONLY_FROM).with("route", asked.route())
        }
        "_active_conns_set" => backends::set_active(&asked),
        "_ttft_toggle" => control::ttft(&asked).await,
        "_tps_toggle" => control::tps(&asked).await,
        "_ttft_429_toggle" => control::ttft_429(&asked).await,
        "_rate_limit_toggle" => control::rate_limit(&asked).await,
        "_session_prio_toggle" => control::session_prio(&asked).await,
        "_ttft_limit" => limit::ttft(&asked).await,
        "_tps_limit" => limit::tps(&asked).await,
        _ => Answer::error(404, "unknown page").with("route", asked.route()).with("pages", PAGES.to_vec()),
    };
    answer.reply()
}
