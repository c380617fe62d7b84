//! `_route_opts`: every option of the catalogue with what holds for the route, and what that makes of its pools.

use router_policy::flow::aimd;
use router_policy::option::catalogue::{CATALOGUE, OptionDef};
use router_policy::option::resolved::effective;
use serde_json::{Map, Value as Json, json};

use super::Asked;
use super::answer::{Answer, object};

pub(super) fn options(asked: &Asked<'_>) -> Answer {
    let seen = asked.pool.inspect();
    let values = effective(seen.spec.preset, &seen.spec.set);
    let all = || CATALOGUE.iter().zip(&values);
    let of = |is_hidden: bool| -> Vec<Json> {
        let listed = all().filter(|(option, _)| option.is_hidden == is_hidden);
        listed.map(|(option, (_, value, is_set))| entry(option, value, *is_set, seen.spec.preset)).collect()
    };
    let adaptive = seen.spec.options().flow.adaptive;
    let pools = seen.pools.iter().map(|pool| {
        let bounds = aimd::bounds(&adaptive, pool.static_max);
        let state = json!({"static_max": pool.static_max, "floor": bounds.min, "start": bounds.init});
        (pool.key().to_owned(), state)
    });
    Answer::of(asked.route())
        .with("directives", of(false))
        .with("advanced", of(true))
        .with("pools", pools.collect::<Map<_, _>>())
}

fn entry(option: &OptionDef, value: &str, is_set: bool, preset: router_policy::option::Preset) -> Json {
    object([
        ("key", Some(json!(option.name))),
        ("label", Some(json!(option.label()))),
        ("group", Some(json!(option.group))),
        ("kind", Some(json!(option.kind.name()))),
        ("unit", Some(option.unit).filter(|unit| !unit.is_empty()).map(Json::from)),
        ("default", Some(json!(option.default_text(preset)))),
        ("description", Some(json!(option.description))),
        ("value", Some(json!(value))),
        ("is_set", Some(json!(is_set))),
    ])
}
