use ragen_kernels::cpu::{Blocks, Cpu};
use ragen_kernels::{AttentionShape, Backend, KEY_BLOCK, Layout, Span};

use crate::support::{Numbers, Real, close, everywhere, same_bits, sum};

fn shape(heads: usize, kv_heads: usize, head_dim: usize) -> AttentionShape {
    AttentionShape { heads, kv_heads, head_dim, scale: 1.0 / (head_dim as f32).sqrt() }
}

/// Blocks in which every slot holds NaN.
fn poisoned(cpu: &Cpu, count: usize, shape: AttentionShape) -> Blocks {
    let mut blocks = cpu.blocks(count, shape).unwrap();
    let nan = vec![f32::NAN; count * KEY_BLOCK * shape.kv_heads * shape.head_dim];
    let span = Span { first_row: 0, rows: (count * KEY_BLOCK) as u32, first_position: 0, first_entry: 0 };
    let layout = Layout { spans: vec![span], table: (0..count as u32).collect() };
    cpu.store(&nan, &nan, &layout, shape, &mut blocks).unwrap();
    blocks
}

/// Rows whose keys row `row` sees, in order of position, for every row.
fn visible(layout: &Layout) -> Vec<Vec<usize>> {
    let slot = |span: &Span, position: u32| {
        let block = layout.table[(span.first_entry + position / KEY_BLOCK as u32) as usize];
        (block, position % KEY_BLOCK as u32)
    };
    let mut owners = std::collections::BTreeMap::new();
    for span in &layout.spans {
        for i in 0..span.rows {
            owners.insert(slot(span, span.first_position + i), (span.first_row + i) as usize);
        }
    }
    let mut rows = Vec::new();
    for span in &layout.spans {
        for i in 0..span.rows {
            rows.push((0..=span.first_position + i).map(|position| owners[&slot(span, position)]).collect());
        }
    }
    rows
}

struct Inputs {
    layout: Layout,
    shape: AttentionShape,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    d_out: Vec<f32>,
}

impl Inputs {
    fn new(layout: Layout, shape: AttentionShape) -> Self {
        let rows = layout.rows();
        let mut numbers = Numbers::new((rows * 31 + shape.heads * 7 + shape.head_dim) as u64);
        let (wide, narrow) = (rows * shape.heads * shape.head_dim, rows * shape.kv_heads * shape.head_dim);
        let q = numbers.take(wide, 2.0);
        let (k, v) = (numbers.take(narrow, 2.0), numbers.take(narrow, 1.0));
        Self { layout, shape, q, k, v, d_out: numbers.take(wide, 1.0) }
    }

    /// `out`, `log_sum`, `dq`, `dk`, `dv`.
    fn run(&self, cpu: &Cpu) -> Vec<Vec<f32>> {
        let mut blocks = poisoned(cpu, self.layout.block_bound() + 1, self.shape);
        cpu.store(&self.k, &self.v, &self.layout, self.shape, &mut blocks).unwrap();
        let mut out = vec![7.0; self.q.len()];
        let mut log_sum = vec![7.0; self.layout.rows() * self.shape.heads];
        cpu.attention(&self.q, &self.layout, self.shape, &blocks, &mut out, Some(&mut log_sum)).unwrap();
        let mut quiet = vec![8.0; self.q.len()];
        cpu.attention(&self.q, &self.layout, self.shape, &blocks, &mut quiet, None).unwrap();
        same_bits("without log_sum", &quiet, &out);
        let (mut dq, mut dk, mut dv) = (vec![7.0; self.q.len()], vec![7.0; self.k.len()], vec![7.0; self.k.len()]);
        let (layout, shape) = (&self.layout, self.shape);
        cpu.attention_gradient(&self.q, layout, shape, &blocks, &out, &log_sum, &self.d_out, &mut dq, &mut dk, &mut dv)
            .unwrap();
        vec![out, log_sum, dq, dk, dv]
    }

    /// The same outputs by the formulas.
    fn reference<T: Real>(&self) -> Vec<Vec<T>> {
        let AttentionShape { heads, kv_heads, head_dim, scale } = self.shape;
        let zero = T::from(0.0);
        let (mut out, mut log_sum) = (Vec::new(), Vec::new());
        let (mut dq, mut dk, mut dv) = (vec![zero; self.q.len()], vec![zero; self.k.len()], vec![zero; self.v.len()]);
        for (r, seen) in visible(&self.layout).into_iter().enumerate() {
            for h in 0..heads {
                let at = (r * heads + h) * head_dim;
                let key = |row: usize| (row * kv_heads + h * kv_heads / heads) * head_dim;
                let dot = |a: &[f32], b: &[f32]| sum(a.iter().zip(b).map(|(&a, &b)| T::from(a) * T::from(b)));
                let q = &self.q[at..][..head_dim];
                let scores: Vec<T> =
                    seen.iter().map(|&row| dot(q, &self.k[key(row)..][..head_dim]) * T::from(scale)).collect();
                let maximum = scores.iter().copied().fold(scores[0], |a, b| if b > a { b } else { a });
                let total = sum(scores.iter().map(|&score| (score - maximum).exp()));
                log_sum.push(maximum + total.ln());
                let weights: Vec<T> = scores.iter().map(|&score| (score - maximum).exp() / total).collect();
                let o: Vec<T> = (0..head_dim)
                    .map(|d| {
                        sum(seen.iter().zip(&weights).map(|(&row, &weight)| weight * T::from(self.v[key(row) + d])))
                    })
                    .collect();
                let d_out = &self.d_out[at..][..head_dim];
                let product = sum(o.iter().zip(d_out).map(|(&o, &d)| o * T::from(d)));
                for (&row, &weight) in seen.iter().zip(&weights) {
                    let d_weight = dot(d_out, &self.v[key(row)..][..head_dim]);
                    let d_score = weight * (d_weight - product) * T::from(scale);
                    for d in 0..head_dim {
                        dq[at + d] = dq[at + d] + d_score * T::from(self.k[key(row) + d]);
                        dk[key(row) + d] = dk[key(row) + d] + d_score * T::from(q[d]);
                        dv[key(row) + d] = dv[key(row) + d] + weight * T::from(d_out[d]);
                    }
                }
                out.extend(o);
            }
        }
        vec![out, log_sum, dq, dk, dv]
    }
}

/// A prefix of `prefix` positions and `lengths` continuations that share its blocks.
fn shared_prefix(prefix: usize, lengths: &[usize]) -> Layout {
    assert_eq!(prefix % KEY_BLOCK, 0, "only whole blocks are shared");
    let blocks = (prefix / KEY_BLOCK) as u32;
    let mut table: Vec<u32> = (0..blocks).collect();
    let mut spans = vec![Span { first_row: 0, rows: prefix as u32, first_position: 0, first_entry: 0 }];
    let (mut row, mut block) = (prefix as u32, blocks);
    for &length in lengths {
        let own = length.div_ceil(KEY_BLOCK) as u32;
        spans.push(Span {
            first_row: row,
            rows: length as u32,
            first_position: prefix as u32,
            first_entry: table.len() as u32,
        });
        table.extend(0..blocks);
        table.extend(block..block + own);
        row += length as u32;
        block += own;
    }
    Layout { spans, table }
}

const NAMES: [&str; 5] = ["out", "log_sum", "dq", "dk", "dv"];

#[test]
fn attention_and_its_gradient_agree_with_the_reference() {
    let shapes = [
        shape(1, 1, 8),
        shape(4, 2, 64),
        shape(4, 1, 20),
        shape(7, 1, 16),
        shape(14, 2, 24),
        shape(3, 3, 128),
        shape(26, 2, 9),
    ];
    for shape in shapes {
        for layout in [Layout::whole(&[1]), Layout::whole(&[5, 16, 1, 37]), shared_prefix(32, &[1, 20, 3])] {
            let inputs = Inputs::new(layout, shape);
            let what = format!("{shape:?}, {} rows", inputs.layout.rows());
            let found = everywhere(&what, |cpu| inputs.run(cpu));
            let (plain, exact) = (inputs.reference::<f32>(), inputs.reference::<f64>());
            for (i, name) in NAMES.iter().enumerate() {
                close(&format!("{what}, {name}"), &found[i], &plain[i], &exact[i]);
            }
        }
    }
}

#[test]
fn the_reference_gradient_of_attention_is_a_slope() {
    let mut inputs = Inputs::new(shared_prefix(16, &[3, 2]), shape(2, 1, 4));
    let gradient = inputs.reference::<f64>();
    let d_out = inputs.d_out.clone();
    let loss = |inputs: &Inputs| {
        inputs.reference::<f64>()[0].iter().zip(&d_out).map(|(out, &d)| out * f64::from(d)).sum::<f64>()
    };
    for (which, analytic) in gradient[2..].iter().enumerate() {
        for (i, &analytic) in analytic.iter().enumerate() {
            let mut at = |step: f32| {
                let array = [&mut inputs.q, &mut inputs.k, &mut inputs.v];
                let old = array[which][i];
                [&mut inputs.q, &mut inputs.k, &mut inputs.v][which][i] = old + step;
                let result = (loss(&inputs), f64::from(old + step));
                [&mut inputs.q, &mut inputs.k, &mut inputs.v][which][i] = old;
                result
            };
            let ((up, a), (down, b)) = (at(1e-3), at(-1e-3));
            let slope = (up - down) / (a - b);
            assert!((slope - analytic).abs() < 1e-4, "{slope} and {analytic}");
        }
    }
}

/// Training, prefill in pieces and decoding are one operation.
#[test]
fn a_row_does_not_know_how_it_came() {
    for shape in [shape(4, 2, 64), shape(7, 1, 12), shape(2, 2, 33)] {
        let lengths = [50, 1, 23];
        let inputs = Inputs::new(Layout::whole(&lengths), shape);
        let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
        everywhere("pieces", |cpu| {
            let whole = inputs.run(cpu).swap_remove(0);
            for piece in [1, 7, 16, 40] {
                // Other block numbers, in another order, between blocks that hold NaN.
                let table: Vec<u32> = inputs.layout.table.iter().map(|&block| 19 - 2 * block).collect();
                let mut blocks = poisoned(cpu, 21, shape);
                let mut out = vec![0.0; inputs.q.len()];
                for start in (0..50).step_by(piece) {
                    let mut layout = Layout { spans: Vec::new(), table: table.clone() };
                    let mut rows = Vec::new();
                    for (span, length) in inputs.layout.spans.iter().zip(lengths) {
                        let end = length.min(start + piece);
                        if start < end {
                            layout.spans.push(Span {
                                first_row: rows.len() as u32,
                                rows: (end - start) as u32,
                                first_position: start as u32,
                                first_entry: span.first_entry,
                            });
                            rows.extend(span.first_row as usize + start..span.first_row as usize + end);
                        }
                    }
                    let pick = |x: &[f32], width: usize| -> Vec<f32> {
                        rows.iter().flat_map(|&row| x[row * width..][..width].to_vec()).collect()
                    };
                    let (k, v) = (pick(&inputs.k, narrow), pick(&inputs.v, narrow));
                    cpu.store(&k, &v, &layout, shape, &mut blocks).unwrap();
                    let mut part = vec![0.0; rows.len() * wide];
                    cpu.attention(&pick(&inputs.q, wide), &layout, shape, &blocks, &mut part, None).unwrap();
                    for (part, &row) in part.chunks(wide).zip(&rows) {
                        out[row * wide..][..wide].copy_from_slice(part);
                    }
                }
                same_bits(&format!("pieces of {piece}"), &out, &whole);
            }
            vec![whole]
        });
    }
}

#[test]
fn a_shared_prefix_gives_the_bits_of_an_own_one() {
    let shape = shape(14, 2, 16);
    let (prefix, lengths) = (32, [9, 20]);
    let shared = Inputs::new(shared_prefix(prefix, &lengths), shape);
    let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    let cpu = Cpu::new();
    let found = shared.run(&cpu);
    let mut first = prefix;
    let mut sums = vec![vec![0.0f64; prefix * narrow]; 2];
    for (i, length) in lengths.into_iter().enumerate() {
        let mut own = Inputs::new(Layout::whole(&[prefix + length]), shape);
        let splice = |x: &[f32], width: usize| [&x[..prefix * width], &x[first * width..][..length * width]].concat();
        own.q = splice(&shared.q, wide);
        own.k = splice(&shared.k, narrow);
        own.v = splice(&shared.v, narrow);
        own.d_out = splice(&shared.d_out, wide);
        if i > 0 {
            own.d_out[..prefix * wide].fill(0.0);
        }
        let results = own.run(&cpu);
        same_bits("prefix", &results[0][..prefix * wide], &found[0][..prefix * wide]);
        same_bits("continuation", &results[0][prefix * wide..], &found[0][first * wide..][..length * wide]);
        same_bits("its dq", &results[2][prefix * wide..], &found[2][first * wide..][..length * wide]);
        same_bits("its dk", &results[3][prefix * narrow..], &found[3][first * narrow..][..length * narrow]);
        for (sum, part) in sums.iter_mut().zip(&results[3..]) {
            sum.iter_mut().zip(part).for_each(|(sum, &part)| *sum += f64::from(part));
        }
        first += length;
    }
    for (sum, found) in sums.iter().zip(&found[3..]) {
        for (sum, &found) in sum.iter().zip(found) {
            assert!((sum - f64::from(found)).abs() < 1e-5, "{sum} and {found}");
        }
    }
}

/// A later row that is NaN changes neither an earlier row's output nor its gradients.
#[test]
fn the_future_never_leaks() {
    let shape = shape(6, 2, 16);
    let rows = 40;
    let mut inputs = Inputs::new(Layout::whole(&[rows]), shape);
    let (wide, narrow) = (shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim);
    for cut in [3, 15, 16, 29] {
        let cpu = Cpu::new();
        inputs.d_out[cut * wide..].fill(0.0);
        let clean = inputs.run(&cpu);
        let mut dirty = Inputs::new(Layout::whole(&[rows]), shape);
        dirty.d_out = inputs.d_out.clone();
        dirty.k[cut * narrow..].fill(f32::NAN);
        dirty.v[cut * narrow..].fill(f32::INFINITY);
        let found = dirty.run(&cpu);
        same_bits("out", &found[0][..cut * wide], &clean[0][..cut * wide]);
        same_bits("dq", &found[2][..cut * wide], &clean[2][..cut * wide]);
        inputs = Inputs::new(Layout::whole(&[rows]), shape);
    }
}

/// The gradient of a key comes from rows at or after it; NaN in earlier rows stays there.
#[test]
fn the_past_does_not_leak_into_gradients_of_later_keys() {
    let shape = shape(3, 1, 16);
    let (rows, cut) = (40, 21);
    let clean = Inputs::new(Layout::whole(&[rows]), shape);
    let mut dirty = Inputs::new(Layout::whole(&[rows]), shape);
    let wide = shape.heads * shape.head_dim;
    dirty.q[..cut * wide].fill(f32::NAN);
    dirty.d_out[..cut * wide].fill(f32::NAN);
    let cpu = Cpu::new();
    let (clean, dirty) = (clean.run(&cpu), dirty.run(&cpu));
    for i in [3, 4] {
        same_bits(NAMES[i], &dirty[i][cut * 16..], &clean[i][cut * 16..]);
    }
}

#[test]
fn a_copied_block_holds_the_same_keys() {
    let shape = shape(2, 1, 8);
    let inputs = Inputs::new(Layout::whole(&[21]), shape);
    let cpu = Cpu::new();
    let mut blocks = poisoned(&cpu, 4, shape);
    cpu.store(&inputs.k, &inputs.v, &inputs.layout, shape, &mut blocks).unwrap();
    let (mut before, mut after) = (inputs.q.clone(), inputs.q.clone());
    cpu.attention(&inputs.q, &inputs.layout, shape, &blocks, &mut before, None).unwrap();
    cpu.copy_block(&mut blocks, 1, 3).unwrap();
    let layout = Layout { table: vec![0, 3], ..inputs.layout };
    cpu.attention(&inputs.q, &layout, shape, &blocks, &mut after, None).unwrap();
    same_bits("copy", &before, &after);
}

#[test]
fn large_scores_stay_finite() {
    let mut inputs = Inputs::new(Layout::whole(&[20]), shape(2, 1, 16));
    inputs.q.iter_mut().for_each(|q| *q *= 1e4);
    let results = everywhere("large scores", |cpu| inputs.run(cpu));
    assert!(results.iter().flatten().all(|value| value.is_finite()));
}
