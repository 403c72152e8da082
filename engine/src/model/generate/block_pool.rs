//! Blocks of the KV cache: who uses them, which tokens they hold, and which may be reused.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use ragen_kernels::KEY_BLOCK;

/// Serial number that stands before the first block of every sequence.
pub(crate) const ROOT: u64 = 0;

/// A full block's place: the serial number of the block before it, and its tokens.
type Key = (u64, [u32; KEY_BLOCK]);

#[derive(Clone, Copy)]
struct Known {
    key: Key,
    serial: u64,
    depth: u32,
    used: u64,
}

/// Hands out blocks and remembers full ones by the tokens that they and all blocks before them hold.
///
/// Serial numbers are never given twice, so a block is found only through the very blocks that it was computed after.
#[derive(Default)]
pub(crate) struct BlockPool {
    uses: Vec<u32>,
    known: Vec<Option<Known>>,
    free: Vec<u32>,
    /// Known blocks that nobody uses: longest unused first, and the later one in a sequence before the earlier one.
    idle: BTreeSet<(u64, Reverse<u32>, u32)>,
    /// Looked up in only; its order never matters.
    index: HashMap<Key, u32>,
    clock: u64,
    serials: u64,
}

impl BlockPool {
    pub(crate) fn new(count: usize) -> Self {
        Self {
            uses: vec![0; count],
            known: vec![None; count],
            free: (0..count as u32).rev().collect(),
            ..Self::default()
        }
    }

    pub(crate) fn tick(&mut self) {
        self.clock += 1;
    }

    /// Blocks that can be taken.
    pub(crate) fn available(&self) -> usize {
        self.free.len() + self.idle.len()
    }

    /// Takes a block, forgetting the longest unused one if need be.
    pub(crate) fn take(&mut self) -> Option<u32> {
        let block = match self.free.pop() {
            Some(block) => block,
            None => {
                let (_, _, block) = self.idle.pop_first()?;
                if let Some(known) = self.known[block as usize].take() {
                    self.index.remove(&known.key);
                }
                block
            }
        };
        self.uses[block as usize] = 1;
        Some(block)
    }

    /// Finds the block that holds `tokens` after the block with serial number `parent`, and its own serial number.
    pub(crate) fn find(&self, parent: u64, tokens: &[u32]) -> Option<(u32, u64)> {
        let block = *self.index.get(&(parent, tokens.try_into().ok()?))?;
        Some((block, self.known[block as usize]?.serial))
    }

    /// Adds a user to a known block.
    pub(crate) fn share(&mut self, block: u32) {
        let place = block as usize;
        if self.uses[place] == 0
            && let Some(known) = &self.known[place]
        {
            self.idle.remove(&(known.used, Reverse(known.depth), block));
        }
        self.uses[place] += 1;
    }

    /// Makes a full block known; returns the serial number that stands for its tokens.
    pub(crate) fn register(&mut self, block: u32, parent: u64, tokens: &[u32], depth: usize) -> u64 {
        let Ok(tokens) = tokens.try_into() else { return parent };
        let key = (parent, tokens);
        if let Some(known) = self.index.get(&key).and_then(|&twin| self.known[twin as usize]) {
            return known.serial;
        }
        self.serials += 1;
        self.index.insert(key, block);
        self.known[block as usize] = Some(Known { key, serial: self.serials, depth: depth as u32, used: self.clock });
        self.serials
    }

    /// Removes a user from a block.
    pub(crate) fn release(&mut self, block: u32) {
        let place = block as usize;
        self.uses[place] -= 1;
        if self.uses[place] > 0 {
            return;
        }
        match &mut self.known[place] {
            None => self.free.push(block),
            Some(known) => {
                known.used = self.clock;
                self.idle.insert((known.used, Reverse(known.depth), block));
            }
        }
    }

    /// Forgets what all blocks hold.
    pub(crate) fn forget(&mut self) {
        self.index.clear();
        self.known.fill(None);
        self.free.extend(std::mem::take(&mut self.idle).into_iter().map(|(_, _, block)| block));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_by_its_whole_past() {
        let mut pool = BlockPool::new(3);
        let tokens = [7; KEY_BLOCK];
        let first = pool.take().unwrap();
        let serial = pool.register(first, ROOT, &tokens, 0);
        let second = pool.take().unwrap();
        let child = pool.register(second, serial, &tokens, 1);
        assert_eq!(pool.find(ROOT, &tokens), Some((first, serial)));
        assert_eq!(pool.find(serial, &tokens), Some((second, child)));
        assert_eq!(pool.find(child, &tokens), None);
        // A twin computed at the same time is not remembered, but leads to the same successors.
        let twin = pool.take().unwrap();
        assert_eq!(pool.register(twin, ROOT, &tokens, 0), serial);
        assert_eq!(pool.take(), None);
        for block in [first, second, twin] {
            pool.release(block);
        }
        assert_eq!(pool.available(), 3);
        // The twin was free; then the later block goes before the earlier one.
        assert_eq!([pool.take(), pool.take()], [Some(twin), Some(second)]);
        assert_eq!(pool.find(ROOT, &tokens), Some((first, serial)));
        assert_eq!(pool.find(serial, &tokens), None);
        pool.forget();
        assert_eq!(pool.find(ROOT, &tokens), None);
        assert_eq!(pool.available(), 1);
    }
}
