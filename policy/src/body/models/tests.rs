use proptest::prelude::*;
use serde_json::{Map, Value as Json, json};

use super::*;

fn union(answers: &[&str], limit: Option<u64>) -> String {
    let lists: Vec<ModelList<'_>> = answers.iter().map(|text| ModelList::read(text.as_bytes()).unwrap()).collect();
    Union::of(&lists, limit).unwrap().list()
}

fn one(object: &str, limit: Option<u64>) -> String {
    let answer = format!(r#"{{"data":[{object}]}}"#);
    let lists = [ModelList::read(answer.as_bytes()).unwrap()];
    Union::of(&lists, limit).unwrap().model("m").unwrap()
}

#[test]
fn conventions_2_the_union_keeps_order_and_every_other_byte() {
    let first = "{ \"object\" : \"list\",\n \"data\": [ {\"id\":\"b\", \"x\": 1.10000000000000000001 },\n {\"id\": \"a\"}],\t\"has_more\":false }\n";
    let second = r#"{"data":[{"id":"c","deep":{"id":"z","data":[]}},{"id":"a","other":true}],"ignored":1}"#;
    assert_eq!(
        union(&[first, second], None),
        "{ \"object\" : \"list\",\n \"data\": [{\"id\":\"b\", \"x\": 1.10000000000000000001 },{\"id\": \"a\"},{\"id\":\"c\",\"deep\":{\"id\":\"z\",\"data\":[]}}],\t\"has_more\":false }"
    );
    assert_eq!(union(&[r#"{"data":[]}"#, r#"{"data":[]}"#], Some(9)), r#"{"data":[]}"#);
}

#[test]
fn gateway_7_max_model_len_is_lowered_added_and_never_raised() {
    let rows = [
        // lowered
        (r#"{"id":"m","max_model_len":32768}"#, Some(4096), r#"{"id":"m","max_model_len":4096}"#),
        (r#"{"id":"m", "max_model_len" : 32768 , "x":1}"#, Some(4096), r#"{"id":"m", "max_model_len" : 4096 , "x":1}"#),
        (r#"{"max_model_len":1e9,"id":"m"}"#, Some(4096), r#"{"max_model_len":4096,"id":"m"}"#),
        (r#"{"id":"m","max_model_len":4096.5}"#, Some(4096), r#"{"id":"m","max_model_len":4096}"#),
        (r#"{"id":"m","max_model_len":99999999999999999999}"#, Some(9), r#"{"id":"m","max_model_len":9}"#),
        (r#"{"id":"m","max_model_\u006cen":8}"#, Some(4), r#"{"id":"m","max_model_\u006cen":4}"#),
        (
            r#"{"max_model_len":8,"id":"m","max_model_len":8}"#,
            Some(4),
            r#"{"max_model_len":4,"id":"m","max_model_len":4}"#,
        ),
        // kept: low enough, or nothing to lower it to
        (r#"{"id":"m","max_model_len":4096}"#, Some(32768), r#"{"id":"m","max_model_len":4096}"#),
        (r#"{"id":"m","max_model_len":4096.0}"#, Some(4096), r#"{"id":"m","max_model_len":4096.0}"#),
        (r#"{"id":"m","max_model_len":0}"#, Some(1), r#"{"id":"m","max_model_len":0}"#),
        (r#"{"id":"m","max_model_len":32768}"#, None, r#"{"id":"m","max_model_len":32768}"#),
        // left alone: no number
        (r#"{"id":"m","max_model_len":null}"#, Some(4096), r#"{"id":"m","max_model_len":null}"#),
        (r#"{"id":"m","max_model_len":"32768"}"#, Some(4096), r#"{"id":"m","max_model_len":"32768"}"#),
        (r#"{"id":"m","max_model_len":{"a":9}}"#, Some(4), r#"{"id":"m","max_model_len":{"a":9}}"#),
        // added
        (r#"{"id":"m"}"#, Some(4096), r#"{"id":"m","max_model_len":4096}"#),
        (
            r#"{"id":"m", "x": {"max_model_len": 5} }"#,
            Some(9),
            r#"{"id":"m", "x": {"max_model_len": 5},"max_model_len":9}"#,
        ),
        (r#"{"id":"m"}"#, None, r#"{"id":"m"}"#),
    ];
    for (object, limit, told) in rows {
        assert_eq!(one(object, limit), told, "{object} {limit:?}");
    }
}

#[test]
fn gateway_7_the_smallest_window_of_the_backends_that_have_the_model() {
    let answer = |window: &str| format!(r#"{{"data":[{{"id":"m"{window}}}]}}"#);
    let [large, small, none, word] =
        [r#","max_model_len":9000"#, r#","max_model_len":7000"#, "", r#","max_model_len":"auto""#].map(answer);
    let told = |answers: &[&str], limit| {
        let json: Json = serde_json::from_str(&union(answers, limit)).unwrap();
        json["data"][0].get("max_model_len").cloned()
    };
    assert_eq!(told(&[&large, &small], None), Some(json!(7000)));
    assert_eq!(told(&[&small, &large], None), Some(json!(7000)));
    assert_eq!(told(&[&large, &small], Some(8000)), Some(json!(7000)));
    assert_eq!(told(&[&large, &small], Some(6000)), Some(json!(6000)));
    assert_eq!(told(&[&none, &small], None), Some(json!(7000)));
    assert_eq!(told(&[&none, &small], Some(8000)), Some(json!(7000)));
    assert_eq!(told(&[&none, &none], Some(8000)), Some(json!(8000)));
    assert_eq!(told(&[&none, &none], None), None);
    assert_eq!(told(&[&word, &small], Some(5)), Some(json!("auto")));
    assert_eq!(told(&[&small, &word], None), Some(json!(7000)));
    // Another model's window is none of this one's.
    let other = r#"{"data":[{"id":"n","max_model_len":5}]}"#;
    assert_eq!(told(&[&large, other], None), Some(json!(9000)));
}

#[test]
fn one_model_by_its_id() {
    let first = r#"{"data":[{"id":"org/a b"},{"id":"\u00fc","n":1}]}"#;
    let second = r#"{"data":[{"id":"ü","n":2},{"id":"c"}]}"#;
    let lists = [first, second].map(|text| ModelList::read(text.as_bytes()).unwrap());
    let union = Union::of(&lists, None).unwrap();
    assert_eq!(union.model("org/a b").as_deref(), Some(r#"{"id":"org/a b"}"#));
    assert_eq!(union.model("ü").as_deref(), Some(r#"{"id":"\u00fc","n":1}"#));
    assert_eq!(union.model("c").as_deref(), Some(r#"{"id":"c"}"#));
    assert_eq!(union.model("d"), None);
    assert_eq!(union.model(""), None);
    assert!(Union::of(&[], None).is_none());
}

#[test]
fn answers_that_are_no_list_of_models() {
    for body in [
        "",
        "[]",
        "null",
        "{",
        "{}",
        r#"{"data":{}}"#,
        r#"{"data":null}"#,
        r#"{"data":[}"#,
        r#"{"data":[]} x"#,
        r#"{"models":[]}"#,
        "<html>",
    ] {
        assert!(ModelList::read(body.as_bytes()).is_none(), "{body}");
    }
    assert!(ModelList::read(b"{\"data\":[\"\xff\"]}").is_none());
    // What has no id is passed over, the rest stays.
    let odd = r#"{"data":[1,null,"m",[],{},{"id":7},{"id":"\ud800"},{"id":"m"}]}"#;
    assert_eq!(union(&[odd], Some(3)), r#"{"data":[{"id":"m","max_model_len":3}]}"#);
    // Of two lists JSON readers see the last; whichever a client reads is the union.
    assert_eq!(
        union(&[r#"{"data":[{"id":"x"}],"data":[{"id":"m"}]}"#], None),
        r#"{"data":[{"id":"m"}],"data":[{"id":"m"}]}"#
    );
}

/// An id, its window, and a field that nobody knows.
fn model() -> impl Strategy<Value = Json> {
    let window = prop_oneof![
        3 => (0_u64..50).prop_map(|tokens| Some(json!(tokens))),
        2 => Just(None),
        1 => Just(Some(json!("auto"))),
        1 => Just(Some(Json::Null)),
    ];
    ("[a-d]", window, "[ -~é\"\\\\]{0,6}", any::<bool>()).prop_map(|(id, window, text, window_first)| {
        let mut object = Map::new();
        if window_first && let Some(window) = &window {
            object.insert(MAX_MODEL_LEN.to_owned(), window.clone());
        }
        object.insert(ID.to_owned(), json!(id));
        object.insert("text".to_owned(), json!(text));
        if let Some(window) = window {
            object.insert(MAX_MODEL_LEN.to_owned(), window);
        }
        Json::Object(object)
    })
}

/// The same union, made of trees.
fn naive(answers: &[Json], limit: Option<u64>) -> Json {
    let mut models: Vec<Json> = Vec::new();
    for model in answers.iter().flat_map(|answer| answer[DATA].as_array().unwrap()) {
        match models.iter_mut().find(|known| known[ID] == model[ID]) {
            None => models.push(model.clone()),
            Some(known) => {
                let smaller = model[MAX_MODEL_LEN].as_u64().filter(|more| match known.get(MAX_MODEL_LEN) {
                    None => true,
                    Some(own) => own.as_u64().is_some_and(|own| *more < own),
                });
                if let Some(smaller) = smaller {
                    known[MAX_MODEL_LEN] = json!(smaller);
                }
            }
        }
    }
    for model in &mut models {
        let is_open = match model.get(MAX_MODEL_LEN) {
            None => true,
            Some(own) => own.as_u64().zip(limit).is_some_and(|(own, limit)| own > limit),
        };
        if let (true, Some(limit)) = (is_open, limit) {
            model[MAX_MODEL_LEN] = json!(limit);
        }
    }
    let mut first = answers[0].clone();
    first[DATA] = Json::Array(models);
    first
}

proptest! {
    #[test]
    fn the_union_says_what_a_naive_one_says(
        answers in prop::collection::vec(prop::collection::vec(model(), 0..5), 1..5),
        limit in prop::option::of(1_u64..50),
        is_pretty in any::<bool>(),
    ) {
        let answers: Vec<Json> = answers.into_iter().enumerate()
            .map(|(number, models)| json!({"object": "list", "data": models, "from": number})).collect();
        let texts: Vec<String> = answers.iter()
            .map(|answer| if is_pretty { format!("{answer:#}") } else { answer.to_string() }).collect();
        let lists: Vec<ModelList<'_>> = texts.iter().map(|text| ModelList::read(text.as_bytes()).unwrap()).collect();
        let union = Union::of(&lists, limit).unwrap();
        let expected = naive(&answers, limit);
        let told: Json = serde_json::from_str(&union.list()).unwrap();
        prop_assert_eq!(&told, &expected);
        for model in expected[DATA].as_array().unwrap() {
            let alone = union.model(model[ID].as_str().unwrap()).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Json>(&alone).unwrap(), model);
            // Nothing is told above the limit, and what did not have to change is as the backend wrote it.
            let window = model[MAX_MODEL_LEN].as_u64();
            prop_assert!(window.zip(limit).is_none_or(|(window, limit)| window <= limit));
            let first = lists.iter().flat_map(|list| &list.models).find(|own| own.id == model[ID].as_str().unwrap()).unwrap();
            if serde_json::from_str::<Json>(first.text).unwrap() == *model {
                prop_assert_eq!(alone.as_str(), first.text);
            }
        }
    }

    #[test]
    fn no_bytes_are_too_odd_to_look_at(body in prop::collection::vec(any::<u8>(), 0..64), limit in prop::option::of(1_u64..9)) {
        if let Some(list) = ModelList::read(&body) {
            let lists = [list];
            let _ = Union::of(&lists, limit).map(|union| union.list());
        }
    }
}
