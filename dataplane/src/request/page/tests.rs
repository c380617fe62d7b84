use super::*;

#[test]
fn paths_of_pages() {
    assert_eq!(Page::of("/chat/_route_state"), Some(Page { route: "chat", name: "_route_state" }));
    for path in [
        "/_route_state",
        "/chat/_",
        "/v1/_route_state",
        "/chat/v1/_x",
        "/chat/_a/b",
        "/chat/_a%2e",
        "/chat/route_state",
        "/CHAT/_x",
        "//_x",
        "/healthz",
    ] {
        // A bare underscore is a page that nobody has; all else is no page.
        assert_eq!(Page::of(path).is_some(), path == "/chat/_", "{path}");
    }
    assert!(Page::of(&format!("/chat/_{}", "x".repeat(LONGEST_NAME))).is_none());
}

#[test]
fn queries_within_bounds() {
    let of = |query: &str| {
        parameters(query).map(|found| {
            let mut found: Vec<(String, String)> = found.into_iter().collect();
            found.sort();
            found.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(";")
        })
    };
    assert_eq!(of("").unwrap(), "");
    assert_eq!(of("a=1&b&a=2&&c=x%20y+z%26").unwrap(), "a=2;b=;c=x y z&");
    assert!(of("a=%ff").is_err());
    assert!(of(&"a=1&".repeat(MOST_PARAMETERS)).is_ok() && of(&"a=1&".repeat(MOST_PARAMETERS + 1)).is_err());
    assert!(of(&"x".repeat(LONGEST_QUERY)).is_ok() && of(&"x".repeat(LONGEST_QUERY + 1)).is_err());
}

#[test]
fn what_changes_something_and_where_it_shows() {
    let shown = |path: &'static str, query: &str| Page::of(path).unwrap().shown_on(&parameters(query).unwrap());
    for (path, query, expected) in [
        ("/chat/_rate_limit_toggle", "on=0", Some("_rate_limit_status")),
        ("/chat/_ttft_toggle", "on=0", Some("_ttft_status")),
        ("/chat/_ttft_429_toggle", "on=0", Some("_ttft_status")),
        ("/chat/_tps_toggle", "on=0", Some("_tps_status")),
        ("/chat/_session_prio_toggle", "reset=1", Some("_session_status")),
        ("/chat/_ttft_limit", "ms=5", Some("_ttft_status")),
        ("/chat/_tps_limit", "tps=5", Some("_tps_status")),
        ("/chat/_429_status", "reset=1", Some("_429_status")),
        ("/chat/_ttft_limit", "model=m", None),
        ("/chat/_tps_limit", "", None),
        ("/chat/_429_status", "all=1", None),
        ("/chat/_route_state", "on=0", None),
    ] {
        assert_eq!(shown(path, query), expected, "{path} {query}");
    }
}
