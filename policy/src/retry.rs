//! Which failures may be tried on another backend (gateway.md §4, rulings §1), always before the response head is sent.

/// What went wrong with a backend before its response head was passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Connect,
    /// A connection that ended before the head: retried like [`Self::Connect`], but it takes no backend out, for the
    /// request itself may be what ended it.
    NoHead,
    /// No head in time.
    HeaderTimeout,
    /// An answer with this status.
    Status(u16),
}

/// A route's `retry_on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RetryOn {
    connect: bool,
    header_timeout: bool,
    any_5xx: bool,
    /// Bit n: status 500 + n.
    statuses: u8,
}

impl RetryOn {
    /// From the words of [`crate::option::catalogue::RETRY_CONDITIONS`].
    pub fn from_words(words: &[&str]) -> Self {
        let mut on = Self::default();
        for word in words {
            match *word {
                "connect" => on.connect = true,
                "header_timeout" => on.header_timeout = true,
                "5xx" => on.any_5xx = true,
                "500" => on.statuses |= 1,
                "502" => on.statuses |= 1 << 2,
                "503" => on.statuses |= 1 << 3,
                "504" => on.statuses |= 1 << 4,
                _ => {}
            }
        }
        on
    }

    /// Whether this failure may be tried elsewhere.
    pub fn covers(self, failure: Failure) -> bool {
        match failure {
            Failure::Connect | Failure::NoHead => self.connect,
            Failure::HeaderTimeout => self.header_timeout,
            Failure::Status(status @ 500..=599) => {
                self.any_5xx || (status < 508 && self.statuses & (1 << (status - 500)) != 0)
            }
            Failure::Status(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulings_1_retry_on() {
        let default = RetryOn::from_words(&["connect", "502", "503"]);
        let gateway = RetryOn::from_words(&["connect", "5xx"]);
        let rows = [
            (Failure::Connect, true, true),
            (Failure::NoHead, true, true),
            (Failure::HeaderTimeout, false, false),
            (Failure::Status(500), false, true),
            (Failure::Status(502), true, true),
            (Failure::Status(503), true, true),
            (Failure::Status(504), false, true),
            (Failure::Status(599), false, true),
            (Failure::Status(429), false, false),
            (Failure::Status(400), false, false),
            (Failure::Status(200), false, false),
        ];
        for (failure, by_default, by_gateway) in rows {
            assert_eq!(default.covers(failure), by_default, "{failure:?}");
            assert_eq!(gateway.covers(failure), by_gateway, "{failure:?}");
        }
        assert!(!RetryOn::from_words(&[]).covers(Failure::Connect));
        assert!(RetryOn::from_words(&["header_timeout"]).covers(Failure::HeaderTimeout));
    }
}
