//! What is on its way when the collector stops.

use super::*;

/// The connection to its end, on both sides, as a replica's sender does it.
async fn end(mut stream: TcpStream) {
    assert_eq!(stream.read_to_end(&mut Vec::new()).await.unwrap(), 0, "the collector ends its side first");
}

fn many(start: usize) -> Vec<u8> {
    (start..start + 50).flat_map(|number| frame_of(&format!("{number:03}"), &[b'x'; 2000])).collect()
}

fn numbers(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:03}")).collect()
}

#[tokio::test]
async fn what_was_sent_by_then_is_kept() {
    let running = Running::start().await;
    let mut open = TcpStream::connect(running.frames).await.unwrap();
    // In the kernel's buffers as a whole: nobody has read it when the stop comes.
    open.write_all(&many(0)).await.unwrap();
    // Not even accepted.
    let mut waiting = TcpStream::connect(running.frames).await.unwrap();
    waiting.write_all(&many(50)).await.unwrap();
    let (folder, (), ()) = tokio::join!(running.stop(), end(open), end(waiting));
    let mut kept = ids(&folder);
    kept.sort();
    assert_eq!(kept, numbers(100));
}

#[tokio::test]
async fn a_frame_that_is_being_sent_is_read_to_its_end() {
    let running = Running::start().await;
    let frame = frame_of("000", &vec![b'x'; 8 << 20]);
    let mut stream = TcpStream::connect(running.frames).await.unwrap();
    stream.write_all(&frame[..1 << 20]).await.unwrap();
    running.sees("bodylog_collector_connections", |count| count == 1).await;
    let sending = async {
        running.stop.cancelled().await;
        stream.write_all(&frame[1 << 20..]).await.unwrap();
        end(stream).await;
    };
    let stop = running.stop.clone();
    tokio::join!(sending, async move { stop.cancel() });
    assert_eq!(ids(&running.stop().await), numbers(1));
}

#[tokio::test]
async fn senders_that_do_not_look_are_not_waited_for() {
    let limits = Limits {
        quiet: Duration::from_millis(50),
        last_reads: Duration::from_millis(300),
        retry: Duration::from_millis(20),
        ..Limits::default()
    };
    let running = Running::start_with(limits).await;
    let mut silent = TcpStream::connect(running.frames).await.unwrap();
    silent.write_all(&many(0)).await.unwrap();
    running.sees("bodylog_collector_frames_total", |frames| frames == 50).await;
    // This one never stops sending.
    let mut endless = TcpStream::connect(running.frames).await.unwrap();
    let mut sending = JoinSet::new();
    sending.spawn(async move { while endless.write_all(&frame_of("again", b"")).await.is_ok() {} });
    running.sees("bodylog_collector_frames_total", |frames| frames > 60).await;
    let folder = tokio::time::timeout(GRACE, running.stop()).await.expect("a stop");
    assert!(numbers(50).iter().all(|number| ids(&folder).contains(number)));
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_disk_that_stays_full() {
    let limits =
        Limits { last_reads: Duration::from_millis(300), retry: Duration::from_millis(20), ..Limits::default() };
    let running = Running::start_with(limits).await;
    fs::write(running.folder.path().join("metrics"), "a file where the folder belongs").unwrap();
    let mut stream = TcpStream::connect(running.frames).await.unwrap();
    stream.write_all(&many(0)).await.unwrap();
    running.sees("bodylog_collector_write_errors_total", |errors| errors > 1).await;
    let folder = tokio::time::timeout(GRACE, running.stop()).await.expect("a stop");
    assert!(ids(&folder).is_empty());
}
