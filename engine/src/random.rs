//! Random numbers as a pure function of where they are used.
//!
//! There is no global generator. A [`Stream`] is named by a seed, a [`Purpose`] and coordinates such as group, member or
//! turn; its `n`-th draw depends on those alone. Threads, batch composition and resuming therefore cannot change a draw.
//! The generator is SplitMix64 (Steele, Lea and Flood 2014), whose state is a counter.

/// What a stream is for. Two purposes never share draws, whatever the coordinates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u64)]
pub enum Purpose {
    /// Generation of an environment instance.
    Instance = 1,
    /// Stochastic transitions inside an episode.
    Dynamics = 2,
    /// A further attempt at an instance whose generation failed or was rejected.
    Retry = 3,
    /// Sampling of tokens.
    Sampling = 4,
    /// Order of training rows.
    Shuffle = 5,
    /// Initial weights.
    Initialisation = 6,
    /// Actions of the random agent.
    RandomAgent = 7,
    /// Wording of the supervised warm-up's thoughts.
    Thoughts = 8,
    /// Copying or deleting rows to fit a batch size.
    BatchFit = 9,
    /// Choices made by tests and benchmarks.
    Test = 10,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finaliser of SplitMix64: a bijection whose output bits each depend on every input bit.
#[must_use]
pub const fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Hashes bytes to a word that is the same on every machine and in every run.
#[must_use]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    let mut state = mix(bytes.len() as u64 ^ GOLDEN);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        state = mix(state.wrapping_add(GOLDEN) ^ u64::from_le_bytes(word));
    }
    state
}

/// An endless sequence of draws.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stream {
    key: u64,
    counter: u64,
}

impl Stream {
    /// The stream of `purpose` at `coordinates` under `seed`.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, coordinates: &[u64]) -> Self {
        let mut key = mix(seed.wrapping_add(GOLDEN));
        for &word in [purpose as u64, coordinates.len() as u64].iter().chain(coordinates) {
            key = mix(key.wrapping_add(GOLDEN) ^ mix(word));
        }
        Self { key, counter: 0 }
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.counter += 1;
        mix(self.key.wrapping_add(self.counter.wrapping_mul(GOLDEN)))
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// `true` with the given probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A uniform index below `bound`, without bias (Lemire 2019).
    ///
    /// # Panics
    /// If `bound` is 0: there is nothing to choose from.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0, "cannot choose among nothing");
        let bound = bound as u64;
        let mut product = u128::from(self.bits()) * u128::from(bound);
        if (product as u64) < bound {
            let threshold = bound.wrapping_neg() % bound;
            while (product as u64) < threshold {
                product = u128::from(self.bits()) * u128::from(bound);
            }
        }
        (product >> 64) as usize
    }

    /// A uniform choice.
    ///
    /// # Panics
    /// If `items` is empty.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Puts `items` into a uniformly random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last + 1);
            items.swap(last, other);
        }
    }

    /// A draw from the standard normal distribution (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_a_function_of_its_name() {
        let draws = |seed, purpose, at: &[u64]| {
            let mut stream = Stream::new(seed, purpose, at);
            [stream.bits(), stream.bits()]
        };
        let base = draws(7, Purpose::Dynamics, &[1, 2]);
        assert_eq!(base, draws(7, Purpose::Dynamics, &[1, 2]));
        for other in [
            draws(8, Purpose::Dynamics, &[1, 2]),
            draws(7, Purpose::Instance, &[1, 2]),
            draws(7, Purpose::Dynamics, &[2, 1]),
            draws(7, Purpose::Dynamics, &[1, 2, 0]),
            draws(7, Purpose::Dynamics, &[1]),
        ] {
            assert_ne!(base, other);
        }
    }

    /// A change of the generator would silently change every published seed.
    #[test]
    fn the_first_draw_is_pinned() {
        assert_eq!(Stream::new(1, Purpose::Instance, &[]).bits(), PINNED);
    }
    const PINNED: u64 = 12_029_235_725_778_684_815;

    /// 6 cells, 60,000 draws: each count is 10,000 with standard deviation 91; five of those allowed.
    #[test]
    fn choices_are_uniform() {
        let mut stream = Stream::new(3, Purpose::Test, &[]);
        let mut counts = [0_i32; 6];
        for _ in 0..60_000 {
            counts[stream.below(6)] += 1;
        }
        assert!(counts.iter().all(|count| (count - 10_000).abs() < 457), "{counts:?}");
    }
}
