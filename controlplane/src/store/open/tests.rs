use super::*;

fn sqlite_path(url: &str) -> PathBuf {
    match parse(url).unwrap() {
        Target::Sqlite(path) => path,
        Target::Postgres(_) => panic!("{url}"),
    }
}

#[test]
fn sqlite_urls_name_a_path() {
    assert_eq!(sqlite_path("sqlite:router.db"), PathBuf::from("router.db"));
    assert_eq!(sqlite_path("sqlite:/var/lib/router.db"), PathBuf::from("/var/lib/router.db"));
    assert_eq!(sqlite_path("sqlite:///var/lib/router.db"), PathBuf::from("/var/lib/router.db"));
    assert_eq!(sqlite_path("sqlite://state/router.db"), PathBuf::from("state/router.db"));
}

#[test]
fn postgres_urls_are_taken_in_both_spellings() {
    for url in ["postgres://router@db:5433/routers", "postgresql://router@db:5433/routers"] {
        let Target::Postgres(options) = parse(url).unwrap() else { panic!("{url}") };
        assert_eq!((options.get_host(), options.get_port(), options.get_database()), ("db", 5433, Some("routers")));
    }
}

#[test]
fn other_urls_are_refused_with_what_is_allowed_and_without_their_text() {
    for url in [
        "",
        "router.db",
        "sqlite:",
        "sqlite::memory:",
        "sqlite:a.db?mode=ro",
        "mysql://root:hunter2@db/x",
        "postgres://router:hunter2/with/slashes@db/x",
        "postgres://router:hunter2@db:port/x",
        "postgres://router:hunter2@db/x?sslmode=hunter2",
    ] {
        let text = parse(url).unwrap_err().to_string();
        assert!(text.contains("allowed: sqlite:PATH, postgres://"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
