//! Where a session belongs by its id alone (`affinity: hash` and `rendezvous`; rulings §1, routing.md §5). The id is
//! hashed as it is: neither key nor route is part of it, so that other routers with the same list agree.

use md5::{Digest, Md5};

/// `affinity: hash`: taken modulo the backends of the tier by whoever knows them.
pub fn crc32(session_id: &[u8]) -> u32 {
    crc32fast::hash(session_id)
}

/// `affinity: rendezvous`: what a session weighs on each of these backends (`host:port`), in their order.
pub fn weights<'a>(
    session_id: &[u8],
    addresses: impl IntoIterator<Item = &'a str, IntoIter: 'a>,
) -> impl Iterator<Item = (&'a str, u32)> {
    let start = Md5::new().chain_update(session_id).chain_update(b"|");
    addresses.into_iter().map(move |address| {
        let digest: [u8; 16] = start.clone().chain_update(address).finalize().into();
        // The first eight hexadecimal digits.
        let [a, b, c, d, ..] = digest;
        (address, u32::from_be_bytes([a, b, c, d]))
    })
}

/// The backends in the order in which the session prefers them: the highest weight first, of equal ones the earlier in the
/// list.
pub fn ranking<'a>(
    session_id: &[u8],
    addresses: impl IntoIterator<Item = &'a str, IntoIter: 'a>,
) -> impl Iterator<Item = &'a str> {
    let mut weighed: Vec<(&str, u32)> = weights(session_id, addresses).collect();
    // Stable: ties stay as they were.
    weighed.sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
    weighed.into_iter().map(|(address, _)| address)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: [&str; 3] = ["10.0.0.11:8000", "10.0.0.12:8000", "10.0.0.13:8000"];

    #[test]
    fn routing_5_3_vectors() {
        for (id, expected, order) in [
            ("s1", [696_383_518, 3_107_275_424, 3_210_207_237], [2, 1, 0]),
            ("abc", [764_357_507, 3_479_913_572, 1_857_688_335], [1, 2, 0]),
            ("user-42", [115_726_651, 2_559_513_514, 542_731_450], [1, 2, 0]),
            (" x ", [1_248_806_350, 2_505_878_656, 2_019_015_775], [1, 2, 0]),
        ] {
            let found: Vec<u32> = weights(id.as_bytes(), PEERS).map(|(_, weight)| weight).collect();
            assert_eq!(found, expected, "{id:?}");
            let ranked: Vec<&str> = ranking(id.as_bytes(), PEERS).collect();
            assert_eq!(ranked, order.map(|at| PEERS[at]), "{id:?}");
        }
    }

    #[test]
    fn equal_weights_keep_the_order_of_the_list() {
        // The same address twice weighs the same; told apart by where the text lies.
        let (first, second) = (String::from("h:1"), String::from("h:1"));
        let ranked: Vec<&str> = ranking(b"s", [first.as_str(), second.as_str()]).collect();
        assert!(std::ptr::eq(ranked[0], first.as_str()) && std::ptr::eq(ranked[1], second.as_str()));
    }

    #[test]
    fn crc32_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926, "the check value of CRC-32/ISO-HDLC");
        assert_eq!(crc32(b""), 0);
    }
}
