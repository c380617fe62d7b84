//! Reads the request body: bounded, with an inactivity timeout, without copying when it came in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::Body;
use http_body_util::BodyExt;

use super::error::Error;

/// Reserved at once on the word of a `Content-Length`; more is reserved as it comes.
const RESERVE_MAX: usize = 1 << 20;

/// Before anything is read: a stated length over the limit is refused.
pub(crate) fn check_stated_length(headers: &HeaderMap, limit: u64) -> Result<(), Error> {
    let stated = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if stated.is_some_and(|length| length > limit) { Err(Error::BodyTooLarge { limit }) } else { Ok(()) }
}

/// The whole body as one contiguous piece. Trailers are dropped.
pub(crate) async fn read<B>(mut body: B, limit: u64, silence: Duration) -> Result<Bytes, Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while !body.is_end_stream() {
        let frame = match tokio::time::timeout(silence, body.frame()).await {
            Err(_elapsed) => return Err(Error::BodyTimeout),
            Ok(None) => break,
            Ok(Some(Err(_))) => return Err(Error::BodyBroken),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(chunk) = frame.into_data() else { continue };
        if (first.len() + rest.len() + chunk.len()) as u64 > limit {
            return Err(Error::BodyTooLarge { limit });
        }
        if !rest.is_empty() {
            rest.extend_from_slice(&chunk);
        } else if first.is_empty() {
            first = chunk;
        } else {
            let more = usize::try_from(body.size_hint().lower()).unwrap_or(RESERVE_MAX).min(RESERVE_MAX);
            rest.reserve(first.len() + chunk.len() + more);
            rest.extend_from_slice(&first);
            rest.extend_from_slice(&chunk);
            first = Bytes::new();
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
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

    #[tokio::test]
    async fn one_piece_is_not_copied_and_many_become_one() {
        let whole = Bytes::from_static(b"hello");
        let read_back = read(Full::new(whole.clone()), 5, LONG).await.unwrap();
        assert_eq!(read_back.as_ptr(), whole.as_ptr());
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
