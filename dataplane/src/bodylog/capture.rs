//! What is kept of a response: its beginning, and of what does not fit there its end (payloads.md §6, rulings §7).
//! Everything is copied: a slice would keep the connection's whole read buffer alive for as long as a slow stream runs. A
//! chunk costs that copy; buffers grow by doubling, and the tail is made once.

use std::collections::VecDeque;
use std::fmt;

/// Room for the beginning, in bytes: 1.5 MiB.
pub(super) const HEAD_MAX: usize = 3 << 19;
/// Room for the end, in bytes: 512 KiB.
pub(super) const TAIL_MAX: usize = 512 << 10;
/// The head's first size, in bytes.
const HEAD_MIN: usize = 4 << 10;

/// One response.
#[derive(Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    /// From the first chunk on that did not fit the head; the head is closed then.
    tail: Option<Tail>,
    /// Bytes seen.
    total: u64,
    /// Chunks seen that were not empty.
    chunks: u64,
}

/// Bodies are in no log.
impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tail = self.tail.as_ref().map_or(0, |tail| tail.bytes.len());
        write!(f, "{} + {tail} of {} bytes", self.head.len(), self.total)
    }
}

/// The newest chunks, as many as fit whole.
struct Tail {
    bytes: VecDeque<u8>,
    /// Of the chunks in `bytes`.
    lengths: VecDeque<u32>,
}

impl Capture {
    /// Takes a chunk. Returns how many bytes the buffers have grown by.
    pub(super) fn push(&mut self, chunk: &[u8]) -> usize {
        if chunk.is_empty() {
            return 0;
        }
        self.total = self.total.saturating_add(chunk.len() as u64);
        self.chunks += 1;
        let needed = self.head.len().saturating_add(chunk.len());
        if self.tail.is_none() && needed <= HEAD_MAX {
            let before = self.head.capacity();
            if needed > before {
                let target = needed.max(before * 2).clamp(HEAD_MIN, HEAD_MAX);
                self.head.reserve_exact(target - self.head.len());
            }
            self.head.extend_from_slice(chunk);
            self.head.capacity() - before
        } else if let Some(tail) = &mut self.tail {
            let before = tail.cost();
            tail.push(chunk);
            tail.cost() - before
        } else {
            let tail = self.tail.insert(Tail::new());
            tail.push(chunk);
            tail.cost()
        }
    }

    /// Bytes seen.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Chunks seen that were not empty.
    pub(super) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Whether the head did not hold all. The tail may hold the rest all the same.
    pub(super) fn is_truncated(&self) -> bool {
        self.tail.is_some()
    }

    /// What stands between head and tail; empty where there is no tail.
    pub(super) fn marker(&self) -> String {
        let Some(tail) = &self.tail else { return String::new() };
        let missing = self.total.saturating_sub((self.head.len() + tail.bytes.len()) as u64);
        format!("\n[BODYLOG_TRUNCATED {missing} BYTES MISSING IN MIDDLE]\n")
    }

    /// The captured body in pieces, around [`Self::marker`].
    pub(super) fn pieces<'a>(&'a self, marker: &'a str) -> [&'a [u8]; 4] {
        let (first, second) = self.tail.as_ref().map(|tail| tail.bytes.as_slices()).unwrap_or_default();
        [&self.head, marker.as_bytes(), first, second]
    }
}

impl Tail {
    fn new() -> Self {
        Self { bytes: VecDeque::with_capacity(TAIL_MAX), lengths: VecDeque::new() }
    }

    /// In bytes.
    fn cost(&self) -> usize {
        self.bytes.capacity() + self.lengths.capacity() * size_of::<u32>()
    }

    fn push(&mut self, chunk: &[u8]) {
        let kept = chunk.get(chunk.len().saturating_sub(TAIL_MAX)..).unwrap_or_default();
        while self.bytes.len() + kept.len() > TAIL_MAX {
            let Some(oldest) = self.lengths.pop_front() else { break };
            self.bytes.drain(..(oldest as usize).min(self.bytes.len()));
        }
        self.bytes.extend(kept);
        self.lengths.push_back(u32::try_from(kept.len()).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests;
