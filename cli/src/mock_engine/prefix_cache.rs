//! A simulated prefix cache, as vLLM's automatic prefix caching works.
//!
//! Text is cut into blocks of fixed size; a block's hash covers all text before it, so equal hashes mean equal prefixes.
//! The cache holds hashes only, the least recently used leaves first, and of one text the tail leaves before the head (a
//! tail without its head is of no use). One simplification: the answer's blocks are stored when the request starts.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};

/// Bytes of text that count as one token.
pub(crate) const TOKEN_BYTES: usize = 4;
/// Tokens per cache block: vLLM's default.
pub(crate) const BLOCK_TOKENS: usize = 16;
/// Bytes of text per cache block.
const BLOCK_BYTES: usize = TOKEN_BYTES * BLOCK_TOKENS;

/// Tokens that `text` counts as.
pub(crate) fn token_count(text: &str) -> usize {
    text.len().div_ceil(TOKEN_BYTES)
}

/// A bounded set of known prefixes.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    /// Grows by one with each use of a block: a total order of uses without a clock.
    next_use: u64,
    use_by_block: HashMap<u64, u64>,
    block_by_use: BTreeMap<u64, u64>,
}

impl PrefixCache {
    /// A cache of at most `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, next_use: 0, use_by_block: HashMap::new(), block_by_use: BTreeMap::new() }
    }

    /// Returns how many tokens of `prompt` were cached, and stores the blocks of `prompt` followed by `answer`.
    ///
    /// Never all of the prompt: an engine computes at least its last token again, so a full hit loses its last block.
    pub(crate) fn use_prefix(&mut self, prompt: &str, answer: &str) -> usize {
        let mut text = String::with_capacity(prompt.len() + answer.len());
        text.push_str(prompt);
        text.push_str(answer);
        let blocks = block_chain(text.as_bytes());

        let usable_blocks = prompt.len().saturating_sub(1) / BLOCK_BYTES;
        let hit_blocks =
            blocks.iter().take(usable_blocks).take_while(|block| self.use_by_block.contains_key(block)).count();
        for block in blocks.into_iter().rev() {
            self.touch(block);
        }
        while self.use_by_block.len() > self.capacity {
            let Some((_, oldest)) = self.block_by_use.pop_first() else {
                break;
            };
            self.use_by_block.remove(&oldest);
        }
        hit_blocks * BLOCK_TOKENS
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.use_by_block.clear();
        self.block_by_use.clear();
    }

    /// Makes `block` the most recently used.
    fn touch(&mut self, block: u64) {
        let this_use = self.next_use;
        self.next_use += 1;
        if let Some(last_use) = self.use_by_block.insert(block, this_use) {
            self.block_by_use.remove(&last_use);
        }
        self.block_by_use.insert(this_use, block);
    }
}

/// Hashes of the full blocks of `text`, each over its own bytes and the hash before it.
fn block_chain(text: &[u8]) -> Vec<u64> {
    let mut parent = 0;
    text.chunks_exact(BLOCK_BYTES)
        .map(|block| {
            let mut hasher = DefaultHasher::new();
            hasher.write_u64(parent);
            hasher.write(block);
            parent = hasher.finish();
            parent
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seed: char, blocks: usize) -> String {
        let blocks: Vec<String> = (0..blocks).map(|block| format!("{seed}{block:063}")).collect();
        blocks.concat()
    }

    #[test]
    fn a_second_turn_hits_prompt_and_answer_of_the_first() {
        let mut cache = PrefixCache::new(100);
        let first = text('a', 3);
        let answer = text('b', 1);
        assert_eq!(cache.use_prefix(&first, &answer), 0);
        let second = format!("{first}{answer}and more");
        assert_eq!(cache.use_prefix(&second, ""), 4 * BLOCK_TOKENS);
    }

    #[test]
    fn a_full_hit_still_computes_the_last_block() {
        let mut cache = PrefixCache::new(100);
        let prompt = text('a', 3);
        cache.use_prefix(&prompt, "");
        assert_eq!(cache.use_prefix(&prompt, ""), 2 * BLOCK_TOKENS);
    }

    #[test]
    fn an_equal_block_after_another_start_is_no_hit() {
        let mut cache = PrefixCache::new(100);
        let tail = text('t', 2);
        cache.use_prefix(&format!("{}{tail}", text('a', 1)), "");
        assert_eq!(cache.use_prefix(&format!("{}{tail}", text('b', 1)), ""), 0);
    }

    #[test]
    fn a_partial_block_is_not_cached() {
        let mut cache = PrefixCache::new(100);
        cache.use_prefix("short", "");
        assert_eq!(cache.use_prefix("short and longer", ""), 0);
    }

    #[test]
    fn the_least_recently_used_text_leaves_first_and_its_tail_before_its_head() {
        let mut cache = PrefixCache::new(5);
        let (old, new) = (text('o', 3), text('n', 3));
        cache.use_prefix(&old, "");
        cache.use_prefix(&new, "");
        assert_eq!(cache.use_by_block.len(), 5);
        assert_eq!(cache.block_by_use.len(), 5);
        assert_eq!(cache.use_prefix(&format!("{new}x"), ""), 3 * BLOCK_TOKENS);
        // Its last block made room for the third block of `new`.
        assert_eq!(cache.use_prefix(&format!("{old}x"), ""), 2 * BLOCK_TOKENS);
    }

    #[test]
    fn no_capacity_caches_nothing_and_clear_forgets() {
        let mut none = PrefixCache::new(0);
        none.use_prefix(&text('a', 2), "");
        assert_eq!(none.use_prefix(&text('a', 2), ""), 0);
        let mut cache = PrefixCache::new(10);
        cache.use_prefix(&text('a', 2), "");
        cache.clear();
        assert_eq!(cache.use_prefix(&text('a', 2), ""), 0);
    }

    #[test]
    fn tokens_are_counted_upwards() {
        assert_eq!(token_count(""), 0);
        assert_eq!(token_count("abcd"), 1);
        assert_eq!(token_count("abcde"), 2);
    }
}
