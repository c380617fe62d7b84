//! Numbers from a seed. Only integer arithmetic and the four basic float operations are used, which every machine rounds
//! alike; the standard library's `ln` may differ between platforms.

/// The `SplitMix64` generator.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed; equal seeds give equal numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one thing: what else is drawn doesn't change its numbers.
    pub fn of(seed: u64, things: [u64; 3]) -> Self {
        Self(things.into_iter().fold(seed, |state, thing| mix(state ^ mix(thing))))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A whole number from 0, below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.bits()) * u128::from(bound)) >> 64).unwrap_or(0)
    }

    /// Exponentially distributed around `mean`, rounded down.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        // From 2^-32 to 1, so that the logarithm is finite.
        let unit = (f64::from(u32::try_from(self.bits() >> 32).unwrap_or(0)) + 1.0) / 4_294_967_296.0;
        let mean = u32::try_from(mean).unwrap_or(u32::MAX);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 23 times a u32")]
        let whole = (-natural_logarithm(unit) * f64::from(mean)) as u64;
        whole
    }

    /// One of the values, each as often as its weight says.
    pub fn pick<T: Copy + Default>(&mut self, weighted: &[(u64, T)]) -> T {
        let mut left = self.below(weighted.iter().map(|(weight, _)| weight).sum());
        for (weight, value) in weighted {
            if left < *weight {
                return *value;
            }
            left -= weight;
        }
        T::default()
    }
}

/// Every input bit reaches every output bit.
fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Of a number above 0: `x = m / 2^k` with `m` from one half to 1, and a series for `m`.
pub(super) fn natural_logarithm(x: f64) -> f64 {
    if x > 1.0 {
        return -natural_logarithm(1.0 / x);
    }
    let (mut m, mut halvings) = (x, 0.0);
    while m < 0.5 && m > 0.0 {
        m *= 2.0;
        halvings += 1.0;
    }
    let ratio = (m - 1.0) / (m + 1.0);
    let (mut power, mut sum, mut odd) = (ratio, 0.0, 1.0);
    for _ in 0..20 {
        sum += power / odd;
        power *= ratio * ratio;
        odd += 2.0;
    }
    2.0 * sum - halvings * std::f64::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_numbers_of_splitmix64() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.bits(), 6_457_827_717_110_365_317);
        assert_eq!(random.bits(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn the_logarithm_is_one() {
        for x in [1000.0, 1.5, 1.0, 0.999, 0.5, 0.3, 1e-3, 2.4e-10] {
            assert!((natural_logarithm(x) - f64::ln(x)).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn draws_have_their_means() {
        let mut random = Random::new(7);
        let sum: u64 = (0..10_000).map(|_| random.exponential(1000)).sum();
        assert!((950..1050).contains(&(sum / 10_000)), "{sum}");
        let ones = (0..10_000).filter(|_| random.pick(&[(3, 1), (1, 2)]) == 1).count();
        assert!((7300..7700).contains(&ones), "{ones}");
    }
}
