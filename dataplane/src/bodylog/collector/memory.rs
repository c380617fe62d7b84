//! The memory of the collector's intake, by bytes. With 512 connections, whatever they send: at most 128 MiB of short frames,
//! 256 MiB of long ones, and 512 MiB of records.

use tokio::sync::{Semaphore, SemaphorePermit};

/// A longer frame, in bytes, needs memory of its own before it is read on.
pub(super) const LONG: usize = 256 << 10;
/// For all long frames, in bytes.
const LONG_FRAMES: usize = 256 << 20;
/// For all records, in bytes: in the making, and on their way into the files.
const RECORDS: usize = 512 << 20;
/// A record in the making takes up so many times its frame: what is read out of an answer, and a line, which is at most twice
/// as long as what is in it (`record::Body`) and is copied while it grows.
const MAKING: usize = 4;
/// What one permit stands for, in bytes.
const UNIT: usize = 1 << 10;

/// Waits are in order, so a large frame is not passed over for ever.
#[derive(Debug)]
pub(super) struct Memory {
    long: Semaphore,
    records: Semaphore,
}

impl Memory {
    pub(super) fn new() -> Self {
        Self { long: Semaphore::new(LONG_FRAMES / UNIT), records: Semaphore::new(RECORDS / UNIT) }
    }

    /// Waits until there is room for a long frame of so many bytes. `None` never comes: nobody closes this.
    pub(super) async fn long(&self, total: usize) -> Option<SemaphorePermit<'_>> {
        self.long.acquire_many(units(total)).await.ok()
    }

    /// Waits until there is room to make a record of a frame of so many bytes.
    pub(super) async fn record(&self, frame: usize) -> Option<SemaphorePermit<'_>> {
        self.records.acquire_many(units(frame.saturating_mul(MAKING))).await.ok()
    }

    /// The record is made: what is more than its line is given back.
    pub(super) fn made(share: &mut Option<SemaphorePermit<'_>>, line: usize) {
        let Some(share) = share else { return };
        let more = share.num_permits().saturating_sub(units(line) as usize);
        drop(share.split(more));
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::bodylog::frame::MAX_TOTAL;

    #[test]
    fn the_largest_frames_fit_and_no_more_bytes_than_stated() {
        let memory = Memory::new();
        let long: Vec<_> = (0..4).map(|_| memory.long(MAX_TOTAL).now_or_never().flatten().unwrap()).collect();
        assert!(memory.long(1).now_or_never().is_none());
        drop(long);
        let many: Vec<_> = (0..100).map(|_| memory.long(2 << 20).now_or_never().flatten().unwrap()).collect();
        assert_eq!(many.len(), 100, "frames as replicas send them don't wait");
        let mut making: Vec<_> = (0..2).map(|_| memory.record(MAX_TOTAL).now_or_never().unwrap()).collect();
        assert!(memory.record(1).now_or_never().is_none());
        Memory::made(&mut making[0], 1 << 20);
        let room = memory.record((255 << 20) / MAKING).now_or_never().unwrap();
        assert!(room.is_some() && memory.record(1).now_or_never().is_none());
    }
}
