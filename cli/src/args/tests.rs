use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("routerctl").chain(line.split_ascii_whitespace()))
}

#[test]
fn the_definition_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn each_verb_is_understood() {
    let lines = [
        "controlplane --grpc-listen 127.0.0.1:0 --http-listen 127.0.0.1:0",
        "dataplane --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --control-plane http://127.0.0.1:7400",
        "mock-engine --listen 127.0.0.1:0",
        "up --replicas 2 --backend-port 19001 --backend-port 19002 --backend gpu:80 --set max_waiting=3",
        "up --preset openresty --debug-endpoints --backend gpu:80,priority=10 --backend gpu:81",
        "up --preset gateway --key-store k --control-file c --backend-state b --max-active-per-backend 4 --max-waiting 8 \
         --queue-timeout 5 --upstream-timeout 10800 --max-sessions 16384 --model-context-limit 65536 \
         --backend-context-limit 1=2 --backend-managed-affinity --backend-dp-size 1=8",
        "route add chat --default --preset gateway --backend gpu:80 --backend-port 1 --set queue_timeout=1s",
        "route add chat --backend 10.0.0.1:8000,priority=10,model=m1 --backend 10.0.0.2:8000,model=m1",
        "route list -o json",
        "route show chat -o yaml",
        "route set chat max_waiting=3 queue_timeout=300ms --unset on_full --default false",
        "route set chat --default true",
        "route remove chat --yes",
        "route options",
        "route options default_max -o json",
        "route options --all",
        "route explain chat",
        "route explain chat --session - --model m1 --turn 3 --context-tokens 4096",
        "route explain chat --fingerprint AB12",
        "route add chat --preset openresty --backend-port 1",
        "backend add chat gpu:80 --name one --max-concurrency 8 --health-path /health --context-limit 131072 --dp-size 8 --priority -1.5 \
         --model m1 --model m2",
        "backend list",
        "backend list chat",
        "backend set chat gpu:80 --max-concurrency 9",
        "backend remove chat gpu:80",
        "drain --port 19002 --wait --timeout 10m",
        "drain --backend one --route chat",
        "undrain --route chat",
        "ban --backend gpu:80 --for 30m",
        "unban --port 80",
        "session list --route chat --backend one --prefix AB12 --limit 5",
        "session show ab12",
        "session forget chat ab12 --yes",
        "session forget chat --backend one",
        "key add laptop",
        "key list",
        "key revoke laptop",
        "rules test -f rules.yaml --body request.json",
        "rules test --route chat --body - --match-syntax lua -o json",
        "toggle",
        "toggle --all load_rate_limit off --for 30m",
        "toggle --all tps_limit_tps reset --model m1",
        "toggle chat",
        "toggle chat load_rate_limit off --for 30m",
        "toggle chat ttft_limit_ms 2500 --model m1",
        "toggle chat tps_limit_tps reset",
        "apply -f routes.yaml --prune --dry-run",
        "diff --file -",
        "import gateway --key-store k --control-file c --backend-port 1 --backend-port 2 --name chat --max-waiting 8 --dry-run",
        "import gateway --control-file c --yes -o json",
        "export",
        "export chat -o json",
        "status",
        "completions bash",
    ];
    for line in lines {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let lines = [
        ("drain", ErrorKind::MissingRequiredArgument),
        ("drain --port 0", ErrorKind::ValueValidation),
        ("drain --port 1 --timeout 10m", ErrorKind::MissingRequiredArgument),
        ("ban --port 1 --for soon", ErrorKind::ValueValidation),
        ("route set chat", ErrorKind::MissingRequiredArgument),
        ("route set chat max_waiting=many", ErrorKind::ValueValidation),
        ("route set chat max_wait=1", ErrorKind::ValueValidation),
        ("route set chat --unset max_wait", ErrorKind::ValueValidation),
        ("route add v1", ErrorKind::ValueValidation),
        ("route add chat --preset best", ErrorKind::InvalidValue),
        ("route add chat --backend gpu:80,priority=high", ErrorKind::ValueValidation),
        ("backend add chat http://gpu:80", ErrorKind::ValueValidation),
        ("session forget chat", ErrorKind::MissingRequiredArgument),
        ("session forget chat abc", ErrorKind::ValueValidation),
        ("session show xyz", ErrorKind::ValueValidation),
        ("up --replicas 0", ErrorKind::ValueValidation),
        ("up --preset best", ErrorKind::InvalidValue),
        ("status -o xml", ErrorKind::InvalidValue),
        ("import gateway", ErrorKind::MissingRequiredArgument),
        ("import gateway --key-store k --backend-port 0", ErrorKind::ValueValidation),
        ("apply", ErrorKind::MissingRequiredArgument),
        ("route explain chat --session a --fingerprint ab", ErrorKind::ArgumentConflict),
        ("route explain chat --turn 0", ErrorKind::ValueValidation),
        ("backend add chat gpu:80 --priority high", ErrorKind::ValueValidation),
        ("toggle --for 5m", ErrorKind::MissingRequiredArgument),
        ("toggle --all ttft", ErrorKind::WrongNumberOfValues),
        ("toggle chat --all ttft off", ErrorKind::ArgumentConflict),
        ("toggle chat ttft off --for 30", ErrorKind::ValueValidation),
        ("ban --port 1 --for 30", ErrorKind::ValueValidation),
        ("toggle chat ttft", ErrorKind::MissingRequiredArgument),
        ("toggle chat rate off", ErrorKind::InvalidValue),
        ("toggle chat ttft off --for soon", ErrorKind::ValueValidation),
        ("toggle chat --for 5m", ErrorKind::MissingRequiredArgument),
    ];
    for (line, kind) in lines {
        match parse(line) {
            Ok(_) => panic!("{line}: accepted"),
            Err(error) => assert_eq!(error.kind(), kind, "{line}: {error}"),
        }
    }
}

#[test]
fn the_control_plane_is_named_before_or_after_the_verb() {
    let url = |line: &str| {
        let cli = parse(line).unwrap();
        let Command::Route(noun) = cli.command else { panic!("{line}") };
        noun.connect.or(cli.connect).control_plane
    };
    assert_eq!(url("--control-plane a:1 route list").as_deref(), Some("a:1"));
    assert_eq!(url("route list --control-plane a:1").as_deref(), Some("a:1"));
    assert_eq!(url("route --control-plane a:1 list").as_deref(), Some("a:1"));
    assert_eq!(url("--control-plane a:1 route list --control-plane b:1").as_deref(), Some("b:1"));
}

#[test]
fn the_mock_engine_s_help_says_how_it_is_steered() {
    let help = parse("mock-engine --help").unwrap_err().to_string();
    for operation in ["set", "settings", "hold", "release", "stats", "reset", "flush"] {
        assert!(help.contains(&format!("/_mock/{operation}")), "{operation}: {help}");
    }
}

#[test]
fn a_bad_option_says_what_is_allowed() {
    let text = parse("route set chat max_waiting=many").unwrap_err().to_string();
    assert!(
        text.contains("max_waiting: integer or word expected") || text.contains("max_waiting: integer expected"),
        "{text}"
    );
    assert!(text.contains("allowed: 0..=100000"), "{text}");
}

/// Command lines of the shell blocks of a page, without what a pipe or a comment adds.
fn commands_of(page: &str) -> Vec<Vec<String>> {
    let blocks = page.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
    let lines = blocks.map(|block| block.replace("\\\n", " ")).collect::<Vec<_>>().join("\n");
    let statements = lines.lines().flat_map(|line| line.split("; "));
    let commands = statements.filter_map(|line| line.trim().strip_prefix("routerctl ").map(words));
    commands.filter(|words| !words.is_empty()).collect()
}

/// Words as a shell splits them: quotes, and an end at a comment, a redirection or an `&`.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote): (Vec<String>, Option<String>, Option<char>) = (vec![], None, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#' | '>' | '|' | '&') if word.is_none() => break,
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn every_command_of_the_documents_is_one() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut pages = vec![root.join("README.md")];
    pages.extend(std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()));
    let mut seen = 0;
    for page in pages.iter().filter(|page| page.extension().is_some_and(|end| end == "md")) {
        for words in commands_of(&std::fs::read_to_string(page).unwrap()) {
            let line = words.join(" ");
            if let Err(error) = Cli::try_parse_from(std::iter::once("routerctl".to_owned()).chain(words)) {
                panic!("{}: {line}: {error}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 40, "{seen} commands");
}
