use super::*;

#[test]
fn a_url_gets_another_database() {
    for (url, expected) in [
        ("postgres://a:b@host:1/old", "postgres://a:b@host:1/new"),
        ("postgres://a:b@host:1", "postgres://a:b@host:1/new"),
        ("postgres://host/old?sslmode=disable", "postgres://host/new?sslmode=disable"),
    ] {
        assert_eq!(replace_database(url, "new"), expected);
    }
}

#[test]
fn command_lines_show_no_url() {
    let mut command = Command::new("psql");
    command.args(["--dbname", "postgres://a:hunter2@host/x"]);
    assert_eq!(line(&command), "psql --dbname URL");
}

#[tokio::test]
async fn databases_of_one_server_are_apart() {
    let Some(one) = required_or_skipped(TestDatabase::start().await) else { return };
    let two = TestDatabase::start().await.unwrap();
    assert_ne!(one.url(), two.url());
    one.sql("CREATE TABLE here (a bigint); INSERT INTO here VALUES (7)").await.unwrap();
    assert_eq!(one.sql("SELECT a, a + 1 FROM here").await.unwrap(), "7|8");
    assert!(matches!(two.sql("SELECT a FROM here").await, Err(PostgresError::Failed { .. })));
    assert!(matches!(one.kill9().await, Err(PostgresError::Shared)));
}

#[tokio::test]
async fn a_private_server_can_be_killed_stopped_and_restarted() {
    let Some(database) = required_or_skipped(TestDatabase::start_private().await) else { return };
    database.sql("CREATE TABLE here (a bigint); INSERT INTO here VALUES (7)").await.unwrap();
    let url = database.url();
    database.kill9().await.unwrap();
    assert!(database.sql("SELECT 1").await.is_err());
    database.restart().await.unwrap();
    database.stop().await.unwrap();
    assert!(database.sql("SELECT 1").await.is_err());
    database.restart().await.unwrap();
    assert_eq!(database.sql("SELECT a FROM here").await.unwrap(), "7");
    assert_eq!(database.url(), url);
}
