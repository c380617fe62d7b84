//! Starting children again that ended by themselves, for `up`: a crash of one part must not end the others' streams.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Announcement, Error, Supervisor};

/// Before a child is started again: its port may need a moment. Twice as long after each further end, up to [`LONGEST`] times as
/// long, so that a child that can't start keeps no core busy and whatever is in its way may pass.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
const LONGEST: u32 = 32;
/// A child that was started so often within [`WITHIN`] will not stay up at the next start either. That takes two minutes.
const MOST_STARTS: usize = 10;
const WITHIN: Duration = Duration::from_secs(300);

impl Supervisor {
    /// Starts whoever ends by itself again, on the ports that it had. Ends with the end of a child that does not stay up.
    pub(crate) async fn keep_up(&mut self) -> Error {
        loop {
            let Some((place, error)) = self.lost() else {
                self.next_event().await;
                continue;
            };
            let Some(child) = self.children.get_mut(place) else { return error };
            let since = Instant::now();
            child.starts.retain(|start| since.duration_since(*start) < WITHIN);
            if child.starts.len() >= MOST_STARTS {
                return error;
            }
            let ends = u32::try_from(child.starts.len()).unwrap_or(u32::MAX);
            tracing::error!("{error}; it is started again");
            sleep(self.pause * 2_u32.saturating_pow(ends.saturating_sub(1)).min(LONGEST)).await;
            if let Err(error) = self.revive(place) {
                // As an end at once: the next try comes later.
                tracing::error!("{error}");
                if let Some(child) = self.children.get_mut(place) {
                    child.starts.push(Instant::now());
                }
            }
        }
    }

    /// The first child that ended without being asked to.
    fn lost(&self) -> Option<(usize, Error)> {
        let is_lost = |child: &super::Handle| child.stdin.is_some() && child.ended.is_some();
        let place = self.children.iter().position(is_lost)?;
        let child = self.children.get(place)?;
        let status = child.ended.clone().unwrap_or_default();
        Some((place, Error::Ended { child: child.name.clone(), status }))
    }

    fn revive(&mut self, place: usize) -> Result<(), Error> {
        let Some(child) = self.children.get(place) else { return Ok(()) };
        let (name, mut args, mut starts) = (child.name.clone(), child.args.clone(), child.starts.clone());
        pin_ports(&mut args, &child.announced);
        let mut handle = self.launch(place, &name, &args)?;
        starts.append(&mut handle.starts);
        handle.starts = starts;
        if let Some(slot) = self.children.get_mut(place) {
            *slot = handle;
        }
        Ok(())
    }
}

/// Replaces each port 0 by the one that was taken: others know it by now.
fn pin_ports(args: &mut [OsString], announced: &[Announcement]) {
    for arg in args {
        let Some((flag, value)) = arg.to_str().and_then(|text| text.split_once('=')) else { continue };
        let key = match flag {
            "--listen" | "--http-listen" => "http",
            "--admin-listen" => "admin",
            "--grpc-listen" => "grpc",
            _ => continue,
        };
        let is_free = value.parse().is_ok_and(|address: SocketAddr| address.port() == 0);
        let taken = announced.iter().filter(|said| said.word == "listening").find_map(|said| said.field(key));
        if let Some(taken) = taken.filter(|_| is_free) {
            *arg = format!("{flag}={taken}").into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_free_ports_are_pinned() {
        let said = Announcement::parse("listening role=dataplane http=127.0.0.1:5001 admin=127.0.0.1:5002").unwrap();
        let mut args: Vec<OsString> =
            ["dataplane", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:9", "--grace=0"].map(Into::into).into();
        pin_ports(&mut args, &[said]);
        assert_eq!(args, ["dataplane", "--listen=127.0.0.1:5001", "--admin-listen=127.0.0.1:9", "--grace=0"]);
    }
}
