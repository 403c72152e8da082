//! Which tokens the next pass computes, and in which blocks their keys go.

use ragen_kernels::{Backend, KEY_BLOCK, Span};

use super::Generator;
use super::block_pool::{BlockPool, ROOT};
use super::request::Sequence;

impl<B: Backend> Generator<B> {
    /// Forgets all keys; running responses wait to be computed again, in their order.
    pub(super) fn rewind(&mut self) {
        self.pool.forget();
        while let Some(mut sequence) = self.running.pop() {
            release(&mut self.pool, &mut sequence);
            self.waiting.push_front(sequence);
        }
    }

    /// Lays out the next pass: running responses first, then new ones in order. Spans that use another sequence's blocks come
    /// after the spans that fill them.
    pub(super) fn plan(&mut self) {
        self.tokens.clear();
        self.positions.clear();
        self.layout.spans.clear();
        self.layout.table.clear();
        self.ready.clear();
        self.endings.clear();
        let mut spare = self.options.pass_tokens - self.running.len();
        let mut index = 0;
        while index < self.running.len() {
            let sequence = &self.running[index];
            let open = sequence.tokens.len() - sequence.computed;
            let rows = 1 + (open - 1).min(spare);
            let needed = (sequence.computed + rows).div_ceil(KEY_BLOCK).saturating_sub(sequence.blocks.len());
            while self.pool.available() < needed && self.running.len() > index {
                self.preempt_last();
            }
            if self.running.len() == index {
                break;
            }
            spare -= rows - 1;
            self.schedule(index, rows);
            index += 1;
        }
        while spare > 0 && self.running.len() < self.options.running {
            let Some(mut sequence) = self.waiting.pop_front() else { break };
            self.adopt(&mut sequence);
            let rows = (sequence.tokens.len() - sequence.computed).min(spare);
            let needed = (sequence.computed + rows).div_ceil(KEY_BLOCK) - sequence.blocks.len();
            // Each running response may soon need another block.
            if self.pool.available() < needed + self.running.len() {
                release(&mut self.pool, &mut sequence);
                self.waiting.push_front(sequence);
                break;
            }
            self.counts.reused += sequence.computed as u64;
            spare -= rows;
            self.running.push(sequence);
            self.schedule(self.running.len() - 1, rows);
        }
    }

    /// Sends the response that started last back to the queue.
    fn preempt_last(&mut self) {
        if let Some(mut sequence) = self.running.pop() {
            release(&mut self.pool, &mut sequence);
            self.waiting.push_front(sequence);
            self.counts.preempted += 1;
        }
    }

    /// Lets a new sequence use the known blocks that hold its beginning; its last token is always computed.
    fn adopt(&mut self, sequence: &mut Sequence) {
        if !self.options.reuse {
            return;
        }
        let whole = (sequence.tokens.len() - 1) / KEY_BLOCK;
        for tokens in sequence.tokens.chunks_exact(KEY_BLOCK).take(whole) {
            let Some((block, serial)) = self.pool.find(sequence.chain, tokens) else { break };
            self.pool.share(block);
            sequence.blocks.push(block);
            sequence.chain = serial;
            sequence.registered += 1;
            sequence.computed += KEY_BLOCK;
        }
    }

    /// Adds the next `rows` tokens of a running sequence to the pass.
    fn schedule(&mut self, index: usize, rows: usize) {
        let sequence = &mut self.running[index];
        let (start, end) = (sequence.computed, sequence.computed + rows);
        while sequence.blocks.len() < end.div_ceil(KEY_BLOCK) {
            // `plan` made sure of enough blocks.
            let Some(block) = self.pool.take() else { break };
            sequence.blocks.push(block);
        }
        if self.options.reuse {
            while (sequence.registered + 1) * KEY_BLOCK <= end {
                let place = sequence.registered;
                let tokens = &sequence.tokens[place * KEY_BLOCK..(place + 1) * KEY_BLOCK];
                sequence.chain = self.pool.register(sequence.blocks[place], sequence.chain, tokens, place);
                sequence.registered += 1;
            }
        }
        let span = Span {
            first_row: self.tokens.len() as u32,
            rows: rows as u32,
            first_position: start as u32,
            first_entry: self.layout.table.len() as u32,
        };
        self.layout.spans.push(span);
        self.layout.table.extend_from_slice(&sequence.blocks);
        self.tokens.extend_from_slice(&sequence.tokens[start..end]);
        self.positions.extend(start as u32..end as u32);
        sequence.computed = end;
        if end == sequence.tokens.len() {
            self.ready.push((self.tokens.len() as u32 - 1, index));
        }
    }
}

/// Gives a sequence's blocks back, the last one first, so that it can start over.
pub(super) fn release(pool: &mut BlockPool, sequence: &mut Sequence) {
    while let Some(block) = sequence.blocks.pop() {
        pool.release(block);
    }
    (sequence.computed, sequence.registered, sequence.chain) = (0, 0, ROOT);
}
