//! Response bodies. Each may carry the request's [`InFlight`] guard and finishes it as it hands over its last byte, so the
//! count has fallen before the peer can know that the answer is complete.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::state::InFlight;
use super::text;

/// Pause before a deliberate death, so that what was written before it reaches the peer.
const DEATH_PAUSE: Duration = Duration::from_millis(20);

/// A response body of the mock engine.
#[derive(Debug)]
pub(crate) struct EngineBody {
    content: Content,
    in_flight: Option<InFlight>,
}

#[derive(Debug)]
enum Content {
    /// Everything at once; `None` when handed over.
    Whole(Option<Bytes>),
    /// The first half of an answer of `total` bytes, then an error.
    Torn { half: Option<Bytes>, total: u64, pause: Pin<Box<Sleep>> },
    /// Token by token.
    Tokens(Box<TokenStream>),
}

impl EngineBody {
    /// A body of one piece. `in_flight` is finished when it is handed over.
    pub(crate) fn whole(bytes: impl Into<Bytes>, mut in_flight: Option<InFlight>) -> Self {
        let bytes: Bytes = bytes.into();
        if bytes.is_empty() {
            // Nobody polls an empty body.
            if let Some(guard) = in_flight.take() {
                guard.finish();
            }
            return Self { content: Content::Whole(None), in_flight: None };
        }
        Self { content: Content::Whole(Some(bytes)), in_flight }
    }

    /// A body that announces all of `bytes` and breaks after half of them.
    pub(crate) fn torn(bytes: &Bytes, in_flight: InFlight) -> Self {
        let content = Content::Torn {
            half: Some(bytes.slice(..bytes.len() / 2)),
            total: bytes.len() as u64,
            pause: Box::pin(tokio::time::sleep(DEATH_PAUSE)),
        };
        Self { content, in_flight: Some(in_flight) }
    }

    /// A streamed body.
    pub(crate) fn tokens(script: Script, in_flight: InFlight) -> Self {
        Self { content: Content::Tokens(Box::new(TokenStream::new(script))), in_flight: Some(in_flight) }
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let frame = match &mut this.content {
            Content::Whole(bytes) => bytes.take().map(Ok),
            Content::Torn { half, pause, .. } => {
                if let Some(half) = half.take() {
                    Some(Ok(half))
                } else {
                    ready!(pause.as_mut().poll(cx));
                    Some(Err(io::Error::other("told to die")))
                }
            }
            Content::Tokens(tokens) => ready!(tokens.poll_next(cx)),
        };
        if this.is_end_stream()
            && let Some(guard) = this.in_flight.take()
        {
            guard.finish();
        }
        Poll::Ready(frame.map(|data| data.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_none(),
            Content::Torn { .. } => false,
            Content::Tokens(tokens) => tokens.is_ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Content::Torn { total, .. } => SizeHint::with_exact(*total),
            Content::Tokens(_) => SizeHint::default(),
        }
    }
}

/// What a streamed answer writes and when. A token's bytes are `before_token`, its text, `after_token`.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) opening: Vec<u8>,
    pub(crate) before_token: Vec<u8>,
    pub(crate) after_token: Vec<u8>,
    /// Everything after the last token; written in one piece with the end of the body.
    pub(crate) closing: Vec<u8>,
    /// Output tokens, at least 1.
    pub(crate) tokens: u32,
    /// Time until the opening, with which the first token leaves.
    pub(crate) ttft: Duration,
    pub(crate) token_gap: Duration,
    /// Break off after this many tokens.
    pub(crate) dies_after: Option<u32>,
}

/// Plays a [`Script`].
#[derive(Debug)]
struct TokenStream {
    script: Script,
    /// 0 is the opening, 1 to `tokens` the tokens, then the closing.
    step: u32,
    /// The pause before `step`, if there is one; deadlines add up, so delays in between do not.
    pause: Option<Pin<Box<Sleep>>>,
    deadline: Instant,
    is_ended: bool,
}

impl TokenStream {
    fn new(script: Script) -> Self {
        let deadline = Instant::now() + script.ttft;
        let pause = (!script.ttft.is_zero()).then(|| Box::pin(tokio::time::sleep_until(deadline)));
        Self { script, step: 0, pause, deadline, is_ended: false }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        if self.is_death() {
            return Poll::Ready(Some(Err(io::Error::other("told to die"))));
        }
        let data = self.step_bytes();
        self.step += 1;
        if self.step > self.script.tokens + 1 {
            self.is_ended = true;
        } else {
            self.plan_pause();
        }
        Poll::Ready(Some(Ok(data)))
    }

    fn is_death(&self) -> bool {
        self.script.dies_after.is_some_and(|tokens| self.step > tokens)
    }

    fn step_bytes(&mut self) -> Bytes {
        let script = &mut self.script;
        if self.step == 0 {
            return Bytes::from(std::mem::take(&mut script.opening));
        }
        if self.step > script.tokens {
            return Bytes::from(std::mem::take(&mut script.closing));
        }
        let piece = text::piece(self.step - 1);
        let mut data = Vec::with_capacity(script.before_token.len() + piece.len() + script.after_token.len());
        data.extend_from_slice(&script.before_token);
        data.extend_from_slice(piece.as_bytes());
        data.extend_from_slice(&script.after_token);
        Bytes::from(data)
    }

    /// The first token leaves with the opening and the closing with the last token; a gap lies between two tokens.
    fn plan_pause(&mut self) {
        let is_between_tokens = (2..=self.script.tokens).contains(&self.step);
        let mut pause = if is_between_tokens { self.script.token_gap } else { Duration::ZERO };
        if self.is_death() {
            pause = pause.max(DEATH_PAUSE);
        }
        if !pause.is_zero() {
            self.deadline += pause;
            self.pause = Some(Box::pin(tokio::time::sleep_until(self.deadline)));
        }
    }
}
