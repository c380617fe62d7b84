//! What happens next: by time, and at one time in the order in which it was planned.

use std::collections::BTreeMap;

use super::Us;

/// Planned events.
#[derive(Debug)]
pub struct Events<E> {
    planned: BTreeMap<(Us, u64), E>,
    next: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { planned: BTreeMap::new(), next: 0 }
    }
}

impl<E> Events<E> {
    /// Plans an event.
    pub fn plan(&mut self, at: Us, event: E) {
        self.planned.insert((at, self.next), event);
        self.next += 1;
    }

    /// The next one, and when it is.
    pub fn take(&mut self) -> Option<(Us, E)> {
        self.planned.pop_first().map(|((at, _), event)| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_then_as_planned() {
        let mut events = Events::default();
        for (at, name) in [(5, "c"), (1, "a"), (5, "d"), (1, "b")] {
            events.plan(at, name);
        }
        let order: Vec<&str> = std::iter::from_fn(|| events.take()).map(|(_, name)| name).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
