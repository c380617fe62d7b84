//! One record on the wire between a replica and the collector (payloads.md §6.2): big-endian lengths, each before its bytes.
//!
//! ```text
//! u32 total | u16 M, meta as JSON | u32 Q, request body | u32 R, response body
//! ```
//!
//! `total` does not count its own four bytes. Bodies are raw bytes. Nothing here reads or writes a socket.

use std::fmt;

/// Bytes of `total`.
pub(crate) const PREFIX: usize = 4;
/// Largest `total`, in bytes: 64 MiB.
pub(crate) const MAX_TOTAL: usize = 64 << 20;
/// Longest meta object, in bytes.
pub(crate) const MAX_META: usize = u16::MAX as usize;
/// Bytes of the three lengths that `total` counts.
const LENGTHS: usize = 2 + 4 + 4;

/// Why a record is no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EncodeError {
    #[error("meta of {0} bytes; at most {MAX_META} allowed")]
    MetaTooLong(usize),
    #[error("frame over {MAX_TOTAL} bytes")]
    FrameTooLong,
}

/// Why bytes are no frame. The connection that they came from can't be trusted to find the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("frame of {0} bytes; {LENGTHS} to {MAX_TOTAL} allowed")]
    Total(u32),
    #[error("lengths inside the frame do not add up to its own")]
    Inconsistent,
}

/// What a frame holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Contents<'a> {
    /// A JSON object, if the sender kept to the form; not checked here.
    pub(crate) meta: &'a [u8],
    pub(crate) request: &'a [u8],
    pub(crate) response: &'a [u8],
}

/// Bodies are in no log.
impl fmt::Debug for Contents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [meta, request, response] = [self.meta, self.request, self.response].map(<[u8]>::len);
        write!(f, "meta, request and response of {meta}, {request} and {response} bytes")
    }
}

/// Appends one whole frame to `out`, or nothing. The response may come in pieces.
pub(crate) fn encode(
    out: &mut Vec<u8>,
    meta: &[u8],
    request: &[u8],
    response: &[impl AsRef<[u8]>],
) -> Result<(), EncodeError> {
    let response_len = response.iter().map(|piece| piece.as_ref().len()).fold(0, usize::saturating_add);
    let meta_len = u16::try_from(meta.len()).map_err(|_| EncodeError::MetaTooLong(meta.len()))?;
    let total = [meta.len(), request.len(), response_len].into_iter().fold(LENGTHS, usize::saturating_add);
    if total > MAX_TOTAL {
        return Err(EncodeError::FrameTooLong);
    }
    let [total, request_len, response_len] =
        [total, request.len(), response_len].map(|length| u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(&total);
    out.extend_from_slice(&meta_len.to_be_bytes());
    out.extend_from_slice(meta);
    out.extend_from_slice(&request_len);
    out.extend_from_slice(request);
    out.extend_from_slice(&response_len);
    for piece in response {
        out.extend_from_slice(piece.as_ref());
    }
    Ok(())
}

/// How many bytes follow the prefix. Checked before room is made for them.
pub(crate) fn total(prefix: [u8; PREFIX]) -> Result<usize, DecodeError> {
    let total = u32::from_be_bytes(prefix);
    match usize::try_from(total) {
        Ok(length) if (LENGTHS..=MAX_TOTAL).contains(&length) => Ok(length),
        _ => Err(DecodeError::Total(total)),
    }
}

/// Reads what follows the prefix: exactly as many bytes as [`total`] says.
pub(crate) fn decode(frame: &[u8]) -> Result<Contents<'_>, DecodeError> {
    let (meta, rest) = meta(frame).ok_or(DecodeError::Inconsistent)?;
    let (request, rest) = body(rest).ok_or(DecodeError::Inconsistent)?;
    match body(rest) {
        Some((response, [])) => Ok(Contents { meta, request, response }),
        _ => Err(DecodeError::Inconsistent),
    }
}

fn meta(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u16::from_be_bytes(*length).into())
}

fn body(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests;
