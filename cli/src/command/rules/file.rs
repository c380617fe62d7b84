//! The rules of a file: alone, with their options, or in a route document as `apply` takes it.

use router_policy::option::resolved::RouteOptions;
use router_policy::route::validate::doubts;
use router_policy::route::{Complaint, Complaints, RouteSpec, parse_document};
use serde_json::{Map, Value as Json};

use super::{STATUS, SYNTAX, effective};
use crate::document::Document;
use crate::failure::{Failure, Kind};
use crate::output::json::{IS_ON, RULES};

/// What only a route document has.
const ROUTE_FIELDS: [&str; 7] =
    ["routes", "name", "options", "backends", "backends_by_model", "peers", "peers_by_model"];

/// The rules of a file and what is odd about them. Of several routes, `route` says which is meant.
pub(super) fn read(
    document: &Document,
    route: Option<&str>,
    syntax: Option<&str>,
) -> Result<(RouteOptions, Vec<String>), Failure> {
    let fields = document.json.as_object();
    if fields.is_some_and(|fields| ROUTE_FIELDS.iter().any(|field| fields.contains_key(*field))) {
        let spec = of_route(document, route, syntax)?;
        return Ok((spec.options(), document.lines(&doubts(&spec))));
    }
    if let Some(route) = route {
        return Err(Failure::usage(format!("--route {route}: the file has rules alone and no routes; leave it out")));
    }
    of_rules(document, fields, syntax)
}

/// The route that is meant. All of the document must be valid, as `apply` wants it.
fn of_route(document: &Document, route: Option<&str>, syntax: Option<&str>) -> Result<RouteSpec, Failure> {
    let mut json = document.json.clone();
    if let Some(syntax) = syntax {
        let is_meant = |one: &Json| route.is_none_or(|name| one.get("name").and_then(Json::as_str) == Some(name));
        let in_list = match json.get_mut("routes") {
            Some(routes) => routes.as_array_mut().map(|routes| routes.iter_mut().filter(|one| is_meant(one)).collect()),
            None => Some(vec![&mut json]),
        };
        in_list.into_iter().flatten().for_each(|one: &mut Json| state_syntax(one, syntax));
    }
    let routes = parse_document(&json).map_err(|complaints| wrong(document, &complaints))?;
    let names: Vec<String> = routes.iter().map(|one| one.name.to_string()).collect();
    let listed = names.join(", ");
    match route {
        Some(name) => {
            let found = routes.into_iter().find(|one| one.name.as_str() == name);
            found.ok_or_else(|| Failure::usage(format!("--route {name}: not in the file; there: {listed}")))
        }
        None if routes.len() > 1 => {
            Err(Failure::usage(format!("the file has several routes: say with --route which of {listed}")))
        }
        None => routes.into_iter().next().ok_or_else(|| wrong(document, &no_routes())),
    }
}

fn no_routes() -> Complaints {
    Complaints(vec![Complaint { field: "routes".to_owned(), problem: "empty; a route expected".to_owned() }])
}

/// Puts the syntax into a route, in place of its own. A route that is none is complained about later.
fn state_syntax(route: &mut Json, syntax: &str) {
    let Some(route) = route.as_object_mut() else { return };
    let options = route.entry("options").or_insert_with(|| Json::Object(Map::new()));
    if let Some(options) = options.as_object_mut() {
        options.insert(SYNTAX.to_owned(), Json::from(syntax));
    }
}

fn of_rules(
    document: &Document,
    fields: Option<&Map<String, Json>>,
    syntax: Option<&str>,
) -> Result<(RouteOptions, Vec<String>), Failure> {
    let mut stated = Map::new();
    let mut complaints = Vec::new();
    match fields {
        Some(fields) => {
            for (name, json) in fields {
                if [RULES, SYNTAX, STATUS, IS_ON].contains(&name.as_str()) {
                    stated.insert(name.clone(), json.clone());
                } else {
                    let problem = format!("unknown field; allowed: {RULES}, {SYNTAX}, {STATUS}, {IS_ON}");
                    complaints.push(Complaint { field: name.clone(), problem });
                }
            }
        }
        None => drop(stated.insert(RULES.to_owned(), document.json.clone())),
    }
    stated.extend(syntax.map(|word| (SYNTAX.to_owned(), Json::from(word))));
    // Rules that stand alone have no name.
    let named = |found: Complaints| {
        found.0.into_iter().map(|one| match one.field.strip_prefix(RULES) {
            Some(place) if fields.is_none() && !place.is_empty() => Complaint { field: place.to_owned(), ..one },
            _ => one,
        })
    };
    match effective(&stated) {
        Ok((options, doubts)) if complaints.is_empty() => {
            Ok((options, document.lines(&Complaints(named(doubts).collect()))))
        }
        Ok(_) => Err(wrong(document, &Complaints(complaints))),
        Err(more) => {
            complaints.extend(named(more));
            Err(wrong(document, &Complaints(complaints)))
        }
    }
}

fn wrong(document: &Document, complaints: &Complaints) -> Failure {
    Failure::new(Kind::Document, document.place(complaints))
}
