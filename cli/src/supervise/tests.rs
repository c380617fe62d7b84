use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps what was written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

/// Children that are shells: the supervisor does not care what it runs.
fn shells() -> (Supervisor, Kept, Kept) {
    let (data, log) = (Kept::default(), Kept::default());
    let supervisor = Supervisor::new("/bin/sh".into(), Lines::new(data.clone()), Lines::new(log.clone()));
    (supervisor, data, log)
}

fn script(text: &str) -> [OsString; 2] {
    ["-c".into(), text.into()]
}

/// Announces itself, and stops when its stdin ends.
const POLITE: &str = "echo listening role=x http=127.0.0.1:1; echo ready role=x; echo log line >&2; \
                      while read -r line; do :; done; echo stopping >&2";

#[tokio::test]
async fn children_are_followed_and_stop_in_order_when_their_stdin_ends() {
    let (mut supervisor, data, log) = shells();
    supervisor.start("control", &script(POLITE)).unwrap();
    supervisor.start("data-1", &script(POLITE)).unwrap();
    supervisor.start("data-2", &script(POLITE)).unwrap();
    for name in ["data-2", "control", "data-1"] {
        supervisor.announced(name, "ready", PATIENCE).await.unwrap();
        assert_eq!(supervisor.address(name, "http", PATIENCE).await.unwrap(), "127.0.0.1:1");
    }
    assert!(supervisor.stop("data-", PATIENCE).await.is_empty());
    assert!(!log.text().contains("control | stopping"), "{}", log.text());
    assert!(supervisor.stop("control", PATIENCE).await.is_empty());
    let log = log.text();
    let last = log.lines().last().unwrap();
    assert_eq!(last, "control | stopping");
    assert!(log.contains("data-1 | stopping") && log.contains("data-2 | log line"), "{log}");
    assert_eq!(data.text().lines().filter(|line| *line == "ready role=x").count(), 3);
}

#[tokio::test]
async fn a_child_that_ends_by_itself_is_named() {
    let (mut supervisor, _, log) = shells();
    supervisor.start("control", &script(POLITE)).unwrap();
    supervisor.start("data-1", &script("echo 'error: no' >&2; exit 3")).unwrap();
    let error = supervisor.announced("data-1", "ready", PATIENCE).await.unwrap_err();
    assert_eq!(error.to_string(), "data-1 ended by itself (exit code 3)");
    assert_eq!(supervisor.first_end().await.to_string(), "data-1 ended by itself (exit code 3)");
    assert!(log.text().contains("data-1 | error: no"));
}

#[tokio::test]
async fn a_child_that_ends_by_itself_is_started_again_until_that_is_hopeless() {
    let (mut supervisor, data, log) = shells();
    supervisor.pause = Duration::from_millis(2);
    supervisor.start("steady", &script(POLITE)).unwrap();
    supervisor.start("weak", &script("echo ready role=weak; exit 3")).unwrap();
    let error = supervisor.keep_up().await;
    assert_eq!(error.to_string(), "weak ended by itself (exit code 3)");
    assert_eq!(data.text().matches("ready role=weak").count(), 10, "{}", data.text());
    assert_eq!(data.text().matches("ready role=x").count(), 1, "the other one is left alone");
    assert!(supervisor.stop("", PATIENCE).await.is_empty());
    assert!(log.text().contains("steady | stopping"));
}

#[tokio::test]
async fn a_child_that_does_not_stop_is_killed_after_the_grace() {
    let (mut supervisor, _, _) = shells();
    supervisor.start("stubborn", &script("echo ready role=x; exec sleep 600")).unwrap();
    supervisor.announced("stubborn", "ready", PATIENCE).await.unwrap();
    assert_eq!(supervisor.stop("", Duration::from_millis(50)).await, ["stubborn"]);
}

#[tokio::test(start_paused = true)]
async fn silence_is_an_error_of_its_own() {
    let (mut supervisor, _, _) = shells();
    supervisor.start("mute", &script("exec sleep 600")).unwrap();
    let error = supervisor.announced("mute", "ready", PATIENCE).await.unwrap_err();
    assert_eq!(error.to_string(), "mute was not ready within 20 s");
}

#[tokio::test]
async fn a_program_that_is_not_there_is_an_error() {
    let nowhere = PathBuf::from("/nonexistent/routerctl");
    let mut supervisor = Supervisor::new(nowhere, Lines::new(io::sink()), Lines::new(io::sink()));
    let error = supervisor.start("x", &[]).unwrap_err();
    assert!(error.to_string().starts_with("start x: No such file"), "{error}");
}

#[test]
fn announcements() {
    let said = Announcement::parse("listening role=dataplane http=127.0.0.1:8080 admin=[::1]:8090").unwrap();
    assert_eq!(said.word, "listening");
    assert_eq!(said.field("admin"), Some("[::1]:8090"));
    assert_eq!(said.field("grpc"), None);
    for other in ["", "hello", "listening to music", "started role=x"] {
        assert_eq!(Announcement::parse(other), None, "{other}");
    }
}
