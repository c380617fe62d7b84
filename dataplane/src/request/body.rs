//! Reads the request body: bounded, with an inactivity timeout, without copying when it came in one piece, and otherwise into
//! one buffer that is sent upstream as it is (gateway.md §1).

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Body;
use http_body_util::BodyExt;

use super::error::Error;

/// A body that is in within this time after its head, and not larger than this, needs no slot while it is read: that is
/// how most come, and asking for one would only add a round trip.
const AT_ONCE: Duration = Duration::from_millis(5);
const AT_ONCE_MAX: usize = 64 << 10;

/// What is read of a body that has no slot yet. Of a longer one, the client's leaving is seen only after the wait.
const WAITING_MAX: usize = 1 << 20;

/// How long a refused client's body is read on and thrown away.
const DISCARD_WITHIN: Duration = Duration::from_secs(2);

/// Before anything is read: a stated length over the limit is refused.
pub(crate) fn check_stated_length(headers: &HeaderMap, limit: u64) -> Result<(), Error> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|length| length > limit) { Err(Error::BodyTooLarge { limit }) } else { Ok(()) }
}

/// A body on its way in, as one contiguous piece in the end. Trailers are dropped.
#[derive(Debug)]
pub(crate) struct Intake<B> {
    body: B,
    limit: u64,
    /// Longest silence of the client.
    silence: Duration,
    /// The only piece so far; it is kept as it came.
    first: Bytes,
    /// From the second piece on, everything.
    rest: BytesMut,
}

impl<B> Intake<B>
where
    B: Body<Data = Bytes> + Unpin,
{
    pub(crate) fn new(body: B, limit: u64, silence: Duration) -> Self {
        Self { body, limit, silence, first: Bytes::new(), rest: BytesMut::new() }
    }

    /// Whether the body is in at once, as small ones are that came with their head. If not, nothing is lost: go on with
    /// [`Self::finish`], with a slot taken for it.
    pub(crate) async fn is_in_at_once(&mut self) -> Result<bool, Error> {
        let at_once = async {
            while self.len() <= AT_ONCE_MAX {
                if !self.read_frame().await? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        tokio::time::timeout(AT_ONCE, at_once).await.unwrap_or(Ok(false))
    }

    /// Reads on, within bounds, while a slot is waited for: only so is it seen that the client has left. Ends when it has, or
    /// when the body is not as it must be.
    pub(crate) async fn broken(&mut self) -> Error {
        while self.len() <= WAITING_MAX {
            match self.read_frame().await {
                Ok(true) => {}
                // All is in: from now on the server sees for itself.
                Ok(false) => break,
                Err(error) => return error,
            }
        }
        std::future::pending().await
    }

    /// Reads the rest.
    pub(crate) async fn finish(mut self) -> Result<Bytes, Error> {
        // On the word of a `Content-Length`, which is within the limit: pages that nothing is written to cost nothing, and
        // what has come is not copied again and again as the buffer grows.
        let to_come = usize::try_from(self.body.size_hint().exact().unwrap_or(0)).unwrap_or(0);
        if to_come > 0 {
            self.make_room(to_come);
        }
        while tokio::time::timeout(self.silence, self.read_frame()).await.map_err(|_elapsed| Error::BodyTimeout)?? {}
        Ok(self.into_bytes())
    }

    /// What has been read, when that is all.
    pub(crate) fn into_bytes(self) -> Bytes {
        if self.rest.is_empty() { self.first } else { self.rest.freeze() }
    }

    /// Reads on for a while and keeps nothing, so that a client that is still sending can hear that it was refused: closed at
    /// once, its connection would be reset under the answer.
    pub(crate) async fn discard(mut self) {
        let rest = async {
            let mut seen = self.len() as u64;
            while let Some(Ok(frame)) = self.body.frame().await {
                seen += frame.data_ref().map_or(0, |data| data.len() as u64);
                if seen > self.limit {
                    return;
                }
            }
        };
        // Not all within the time: answered all the same, and most clients read it.
        let _ = tokio::time::timeout(DISCARD_WITHIN, rest).await;
    }

    fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    /// Takes one frame; false at the body's end. Dropping the future loses nothing.
    async fn read_frame(&mut self) -> Result<bool, Error> {
        if self.body.is_end_stream() {
            return Ok(false);
        }
        let chunk = match self.body.frame().await {
            None => return Ok(false),
            Some(Err(_)) => return Err(Error::BodyBroken),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => chunk,
                Err(_trailers) => return Ok(true),
            },
        };
        if (self.len() + chunk.len()) as u64 > self.limit {
            return Err(Error::BodyTooLarge { limit: self.limit });
        }
        if self.first.is_empty() && self.rest.is_empty() && self.rest.capacity() == 0 {
            self.first = chunk;
        } else {
            self.make_room(chunk.len());
            self.rest.extend_from_slice(&chunk);
        }
        Ok(true)
    }

    /// Room for so much more, and everything in one place.
    fn make_room(&mut self, more: usize) {
        self.rest.reserve(self.first.len() + more);
        let first = std::mem::take(&mut self.first);
        self.rest.extend_from_slice(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body::Frame;
    use http_body_util::{Full, StreamBody};
    use std::convert::Infallible;

    fn chunks(parts: &'static [&'static str]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames = parts.iter().map(|part| Ok(Frame::data(Bytes::from_static(part.as_bytes()))));
        StreamBody::new(tokio_stream::iter(frames))
    }

    const LONG: Duration = Duration::from_secs(30);

    async fn read<B: Body<Data = Bytes> + Unpin>(body: B, limit: u64, silence: Duration) -> Result<Bytes, Error> {
        Intake::new(body, limit, silence).finish().await
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_at_once_needs_no_slot_and_what_is_not_loses_nothing() {
        let mut small = Intake::new(chunks(&["a", "b"]), 10, LONG);
        assert!(small.is_in_at_once().await.unwrap());
        assert_eq!(small.into_bytes(), "ab");
        let mut slow = Intake::new(async_chunks([0, 1, 1]), 10, LONG);
        assert!(!slow.is_in_at_once().await.unwrap());
        assert_eq!(slow.finish().await.unwrap(), "xxx");
        let large = Bytes::from(vec![b'y'; AT_ONCE_MAX + 1]);
        let mut large_one = Intake::new(Full::new(large.clone()), 1 << 20, LONG);
        assert!(!large_one.is_in_at_once().await.unwrap());
        assert_eq!(large_one.finish().await.unwrap(), large);
        let mut broken = Intake::new(chunks(&["abc", "def"]), 5, LONG);
        assert_eq!(broken.is_in_at_once().await.unwrap_err(), Error::BodyTooLarge { limit: 5 });
    }

    #[tokio::test(start_paused = true)]
    async fn while_it_waits_a_body_is_read_within_bounds_and_its_break_is_seen() {
        let mut gone = Intake::new(chunks(&["abc", "def"]), 5, LONG);
        assert_eq!(gone.broken().await, Error::BodyTooLarge { limit: 5 });
        let mut whole = Intake::new(chunks(&["abc", "def"]), 6, LONG);
        assert!(tokio::time::timeout(LONG, whole.broken()).await.is_err(), "it is no error to be in");
        assert_eq!(whole.finish().await.unwrap(), "abcdef");
        let piece = Bytes::from(vec![b'z'; 400 << 10]);
        let frames: Vec<_> = (0..5).map(|_| Ok::<_, Infallible>(Frame::data(piece.clone()))).collect();
        let mut long = Intake::new(StreamBody::new(tokio_stream::iter(frames)), 4 << 20, LONG);
        assert!(tokio::time::timeout(LONG, long.broken()).await.is_err());
        assert_eq!(long.len(), 1200 << 10, "no more than the bound and a piece");
        assert_eq!(long.finish().await.unwrap().len(), 2000 << 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_body_is_read_on_for_a_while_only() {
        let started = tokio::time::Instant::now();
        Intake::new(async_chunks([1, 1, 0]), 10, LONG).discard().await;
        assert_eq!(started.elapsed(), DISCARD_WITHIN);
        Intake::new(chunks(&["a", "b"]), 10, LONG).discard().await;
        assert_eq!(started.elapsed(), DISCARD_WITHIN, "the end ends it");
    }

    #[tokio::test]
    async fn one_piece_is_not_copied_and_many_become_one() {
        let whole = Bytes::from_static(b"hello");
        let mut at_once = Intake::new(Full::new(whole.clone()), 5, LONG);
        assert!(at_once.is_in_at_once().await.unwrap());
        assert_eq!(at_once.into_bytes().as_ptr(), whole.as_ptr());
        assert_eq!(read(chunks(&["a", "bc", "", "def"]), 6, LONG).await.unwrap(), "abcdef");
        assert_eq!(read(chunks(&[]), 6, LONG).await.unwrap(), "");
    }

    #[tokio::test]
    async fn a_chunked_body_over_the_limit_ends_the_reading() {
        let error = read(chunks(&["abc", "def", "never looked at"]), 5, LONG).await.unwrap_err();
        assert_eq!(error, Error::BodyTooLarge { limit: 5 });
        assert!(read(chunks(&["abc", "de"]), 5, LONG).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_reading_and_progress_does_not() {
        let stream = async_chunks([29, 29, 29]);
        assert_eq!(read(stream, 100, LONG).await.unwrap(), "xxx");
        let stream = async_chunks([29, 31, 1]);
        assert_eq!(read(stream, 100, LONG).await.unwrap_err(), Error::BodyTimeout);
    }

    fn async_chunks(gaps_s: [u64; 3]) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let stream = futures_util::stream::unfold(gaps_s.into_iter(), |mut gaps| async move {
            tokio::time::sleep(Duration::from_secs(gaps.next()?)).await;
            Some((Ok(Frame::data(Bytes::from_static(b"x"))), gaps))
        });
        StreamBody::new(Box::pin(stream))
    }
}
