//! Lua patterns as regular expressions that are found in the same texts (rulings §7), for people who come from the session
//! router. As there, they work on bytes, know only ASCII classes, and have no alternatives.
//!
//! What Lua can do and a regular expression can't is refused with its place: `%b`, `%f`, back references. So are position
//! captures, which mean nothing where only the fact of a match counts.

use std::fmt::Write as _;

/// Captures that Lua takes.
const MAX_CAPTURES: usize = 32;

/// The regular expression, for bytes and without Unicode; or what is wrong, with the place in bytes from 1.
pub(super) fn to_regex(pattern: &[u8]) -> Result<String, String> {
    let mut reader = Reader { pattern, at: 0 };
    let mut out = String::from("(?s-u)");
    let (mut open, mut captures) = (0_usize, 0_usize);
    if reader.peek() == Some(b'^') {
        reader.at += 1;
        out.push_str(r"\A");
    }
    while let Some(byte) = reader.peek() {
        match byte {
            b'(' if reader.peek_at(1) == Some(b')') => {
                return Err(reader.refuse("position captures `()` are not supported; leave it out"));
            }
            // Lua repeats single characters only, so a group changes nothing of what is found.
            b'(' => {
                captures += 1;
                if captures > MAX_CAPTURES {
                    return Err(reader.refuse("too many captures; allowed: 32"));
                }
                open += 1;
                reader.at += 1;
            }
            b')' => {
                open = open.checked_sub(1).ok_or_else(|| reader.refuse("`)` without `(`"))?;
                reader.at += 1;
            }
            b'$' if reader.peek_at(1).is_none() => {
                reader.at += 1;
                out.push_str(r"\z");
            }
            _ => {
                let set = reader.single()?;
                set.write(&mut out);
                reader.repeat(&mut out);
            }
        }
    }
    if open == 0 { Ok(out) } else { Err(reader.refuse("`(` without `)`")) }
}

struct Reader<'p> {
    pattern: &'p [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.pattern.get(self.at + ahead).copied()
    }

    fn refuse(&self, why: &str) -> String {
        format!("not a Lua pattern that can be used: {why} (byte {})", self.at + 1)
    }

    /// The bytes that the next item stands for.
    fn single(&mut self) -> Result<Set, String> {
        match self.peek() {
            Some(b'%') => {
                let Some(class) = self.peek_at(1) else {
                    return Err(self.refuse("it ends with `%`"));
                };
                match class {
                    b'b' => return Err(self.refuse("`%b` (balanced brackets) is not supported")),
                    b'f' => return Err(self.refuse("`%f` (frontier) is not supported")),
                    b'0'..=b'9' => return Err(self.refuse("back references are not supported")),
                    _ => {}
                }
                self.at += 2;
                Ok(Set::class(class))
            }
            Some(b'[') => self.set(),
            Some(b'.') => {
                self.at += 1;
                Ok(Set([true; 256]))
            }
            Some(byte) => {
                self.at += 1;
                Ok(Set::of(|other| other == byte))
            }
            None => Ok(Set([false; 256])),
        }
    }

    /// From `[` to behind its `]`. A `]` at the start is a character, as is what follows `%`.
    fn set(&mut self) -> Result<Set, String> {
        let is_negated = self.peek_at(1) == Some(b'^');
        let start = self.at + 1 + usize::from(is_negated);
        let mut end = start;
        // As Lua looks for the end: one item at least, whatever it is.
        while end == start || self.pattern.get(end) != Some(&b']') {
            end += match self.pattern.get(end) {
                Some(b'%') if end + 1 < self.pattern.len() => 2,
                Some(_) => 1,
                None => return Err(self.refuse("`[` without `]`")),
            };
        }
        let mut items = self.pattern.get(start..end).unwrap_or_default();
        let mut set = Set([false; 256]);
        while let [first, rest @ ..] = items {
            items = match (first, rest) {
                (b'%', [class, rest @ ..]) => {
                    set.add(&Set::class(*class));
                    rest
                }
                (low, [b'-', high, rest @ ..]) => {
                    set.add(&Set::of(|byte| (low..=high).contains(&&byte)));
                    rest
                }
                (byte, rest) => {
                    set.add(&Set::of(|other| other == *byte));
                    rest
                }
            };
        }
        self.at = end + 1;
        Ok(if is_negated { set.negated() } else { set })
    }

    /// How often. Whether much or little is tried first makes no difference to whether something is found.
    fn repeat(&mut self, out: &mut String) {
        let sign = match self.peek() {
            Some(b'*' | b'-') => '*',
            Some(b'+') => '+',
            Some(b'?') => '?',
            _ => return,
        };
        out.push(sign);
        self.at += 1;
    }
}

/// Some of the 256 bytes.
struct Set([bool; 256]);

impl Set {
    fn of(is_in: impl Fn(u8) -> bool) -> Self {
        let mut set = [false; 256];
        for (slot, byte) in set.iter_mut().zip(0_u8..=255) {
            *slot = is_in(byte);
        }
        Self(set)
    }

    /// What stands behind `%`: a class, its opposite as a capital letter, or any other character as itself.
    fn class(letter: u8) -> Self {
        let set = match letter.to_ascii_lowercase() {
            b'a' => Self::of(|byte| byte.is_ascii_alphabetic()),
            b'c' => Self::of(|byte| byte.is_ascii_control()),
            b'd' => Self::of(|byte| byte.is_ascii_digit()),
            b'g' => Self::of(|byte| byte.is_ascii_graphic()),
            b'l' => Self::of(|byte| byte.is_ascii_lowercase()),
            b'p' => Self::of(|byte| byte.is_ascii_punctuation()),
            b's' => Self::of(|byte| matches!(byte, b' ' | 9..=13)),
            b'u' => Self::of(|byte| byte.is_ascii_uppercase()),
            b'w' => Self::of(|byte| byte.is_ascii_alphanumeric()),
            b'x' => Self::of(|byte| byte.is_ascii_hexdigit()),
            b'z' => Self::of(|byte| byte == 0),
            _ => return Self::of(|byte| byte == letter),
        };
        if letter.is_ascii_uppercase() { set.negated() } else { set }
    }

    fn negated(self) -> Self {
        Self(self.0.map(|is_in| !is_in))
    }

    fn add(&mut self, other: &Self) {
        for (slot, more) in self.0.iter_mut().zip(other.0) {
            *slot |= more;
        }
    }

    /// As a class of ranges; one without bytes is never found.
    fn write(&self, out: &mut String) {
        if !self.0.contains(&true) {
            out.push_str(r"[^\x00-\xff]");
            return;
        }
        out.push('[');
        let mut bytes = (0_u8..=255).zip(self.0).filter(|(_, is_in)| *is_in).map(|(byte, _)| byte).peekable();
        while let Some(first) = bytes.next() {
            let mut last = first;
            while let Some(next) = bytes.next_if(|next| Some(*next) == last.checked_add(1)) {
                last = next;
            }
            // Writing to a string does not fail.
            let _ = write!(out, r"\x{first:02x}-\x{last:02x}");
        }
        out.push(']');
    }
}
