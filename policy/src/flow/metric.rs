//! What is watched of a signal: a statistic by name, and the value from which it trips (limits.md §5.4).

/// The most entries of a list: more than anybody watches, and each is looked at for each request.
pub const MAX_METRICS: usize = 16;

/// A number made of a window's samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// The mean of the raw values.
    Avg,
    /// The upper bound of the bucket that holds this quantile, strictly between 0 and 1.
    Quantile(f64),
}

/// One watched statistic.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name; its EWMA is kept under it, so a new name starts afresh.
    pub name: String,
    /// What is computed.
    pub statistic: Statistic,
    /// Milliseconds or tokens per second. Without one it is measured and never trips.
    pub threshold: Option<f64>,
}

impl Metric {
    /// What a route without a list watches of the time to first token: 80 % of requests are at most this slow.
    pub fn ttft_default(threshold: Option<f64>) -> Self {
        Self { name: "p80".to_owned(), statistic: Statistic::Quantile(0.8), threshold }
    }

    /// What a route without a list watches of the throughput: 80 % of requests are at least this fast. A literal, as
    /// `1 - 0.8` is another number.
    pub fn tps_default(threshold: Option<f64>) -> Self {
        Self { name: "p80".to_owned(), statistic: Statistic::Quantile(0.2), threshold }
    }

    /// An entry of a declared list, by a name that may be one; an error says what is wrong with the entry. `avg` needs
    /// no `q` and ignores one.
    pub fn declared(name: String, q: Option<f64>, threshold: f64) -> Result<Self, &'static str> {
        let statistic = match q {
            _ if name == "avg" => Statistic::Avg,
            Some(q) if q > 0.0 && q < 1.0 => Statistic::Quantile(q),
            Some(_) => return Err("a `q` that is no number between 0 and 1"),
            None => return Err("no `q` (only `avg` needs none)"),
        };
        if !threshold.is_finite() || threshold < 0.0 {
            return Err("no `threshold` that is a number of 0 or more");
        }
        Ok(Self { name, statistic, threshold: Some(threshold) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_5_4_entries_of_a_list() {
        let declared = |name: &str, q, threshold| Metric::declared(name.to_owned(), q, threshold);
        assert_eq!(declared("avg", None, 0.0).unwrap().statistic, Statistic::Avg);
        assert_eq!(declared("avg", Some(7.0), 1.0).unwrap().statistic, Statistic::Avg);
        assert_eq!(declared("slow", Some(0.9), 1.0).unwrap().statistic, Statistic::Quantile(0.9));
        for (name, q, threshold, problem) in [
            ("p50", None, 1.0, "no `q`"),
            ("p50", Some(0.0), 1.0, "a `q`"),
            ("p50", Some(1.0), 1.0, "a `q`"),
            ("p50", Some(f64::NAN), 1.0, "a `q`"),
            ("p50", Some(0.5), -1.0, "no `threshold`"),
            ("avg", None, f64::NAN, "no `threshold`"),
        ] {
            let error = declared(name, q, threshold).unwrap_err();
            assert!(error.starts_with(problem), "{error}");
        }
    }
}
