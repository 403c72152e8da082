use ragen_kernels::{AdamW, AttentionShape, Backend, Choice, HeadShape, KernelError, Layout, Span, cpu::Cpu};

#[track_caller]
fn length(result: Result<(), KernelError>, operation: &str, argument: &str) {
    match result {
        Err(KernelError::Length { operation: o, argument: a, .. }) if o == operation && a == argument => {}
        other => panic!("{operation} with a wrong `{argument}` gave {other:?}"),
    }
}

#[track_caller]
fn index(result: Result<(), KernelError>, operation: &str) {
    assert!(matches!(&result, Err(KernelError::Index { operation: o, .. }) if *o == operation), "{result:?}");
}

#[test]
fn wrong_lengths_are_errors() {
    let cpu = Cpu::new();
    let v = |count: usize| vec![0.0f32; count];
    assert!(matches!(cpu.zeros(usize::MAX), Err(KernelError::Value { .. })));
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 2, scale: 1.0 };
    assert!(matches!(cpu.blocks(usize::MAX, shape), Err(KernelError::Value { .. })));
    length(cpu.write(&mut v(3), 2, &[0.0; 2]), "write", "buffer");
    length(cpu.read(&v(3), usize::MAX, &mut [0.0; 2]), "read", "buffer");
    length(cpu.fill(&mut v(3), 4, 0.0), "fill", "buffer");
    length(cpu.copy(&v(3), &mut v(4), 4), "copy", "x");
    length(cpu.add(&v(4), &mut v(3), 4), "add", "y");
    length(cpu.gather(&v(4), &[0, 1], 2, &mut v(3)), "gather", "y");
    length(cpu.scatter_add(&v(3), &[0, 1], 2, &mut v(4)), "scatter_add", "x");
    length(cpu.matrix(&v(5), 2, 3).map(|_| ()), "matrix", "weights");
    let mut matrix = cpu.matrix(&v(6), 2, 3).unwrap();
    length(cpu.repack(&v(5), &mut matrix), "repack", "weights");
    length(cpu.linear(&v(5), 2, &matrix, None, &mut v(4), false), "linear", "x");
    length(cpu.linear(&v(6), 2, &matrix, Some(&v(3)), &mut v(4), false), "linear", "bias");
    length(cpu.linear(&v(6), usize::MAX, &matrix, None, &mut v(4), false), "linear", "x");
    length(cpu.linear(&v(6), 2, &matrix, None, &mut v(3), false), "linear", "y");
    let input = "linear_input_gradient";
    length(cpu.linear_input_gradient(&v(3), 2, &v(6), &matrix, &mut v(6), false), input, "dy");
    length(cpu.linear_input_gradient(&v(4), 2, &v(7), &matrix, &mut v(6), false), input, "weights");
    length(cpu.linear_input_gradient(&v(4), 2, &v(6), &matrix, &mut v(5), false), input, "dx");
    let weight = "linear_weight_gradient";
    length(cpu.linear_weight_gradient(&v(5), &v(4), 2, 2, 3, &mut v(6), None), weight, "x");
    length(cpu.linear_weight_gradient(&v(6), &v(3), 2, 2, 3, &mut v(6), None), weight, "dy");
    length(cpu.linear_weight_gradient(&v(6), &v(4), 2, 2, 3, &mut v(5), None), weight, "dw");
    length(cpu.linear_weight_gradient(&v(6), &v(4), 2, 2, 3, &mut v(6), Some(&mut v(3))), weight, "db");
    length(cpu.rms_norm(&v(5), 2, &v(3), 0.0, &mut v(6)), "rms_norm", "x");
    length(cpu.rope(&mut v(7), &[0, 0], 2, 2, &v(2), false), "rope", "x");
    length(cpu.swiglu(&v(3), &v(3), 3, &mut v(2)), "swiglu", "y");
    let step = AdamW { lr: 0.1, beta1: 0.9, beta2: 0.9, eps: 0.1, weight_decay: 0.0, step: 1, gradient_scale: 1.0 };
    length(cpu.adamw(&mut v(3), &v(2), &mut v(3), &mut v(3), &step), "adamw", "gradient");
    let zeroth = AdamW { step: 0, ..step };
    assert!(matches!(cpu.adamw(&mut v(1), &v(1), &mut v(1), &mut v(1), &zeroth), Err(KernelError::Value { .. })));
}

#[test]
fn wrong_indices_are_errors() {
    let cpu = Cpu::new();
    let v = |count: usize| vec![0.0f32; count];
    index(cpu.gather(&v(4), &[0, 2], 2, &mut v(4)), "gather");
    index(cpu.scatter_add(&v(4), &[0, 2], 2, &mut v(4)), "scatter_add");
    index(cpu.embedding(&v(4), &[4], 1, &mut v(1)), "embedding");
    index(cpu.embedding_gradient(&[4], &v(1), 1, &mut v(4)), "embedding_gradient");
    index(cpu.rope(&mut v(4), &[1], 2, 2, &v(3), false), "rope");
    let matrix = cpu.matrix(&v(6), 3, 2).unwrap();
    let shape = HeadShape { width: 2, outputs: 3, vocabulary: 2, temperature: 1.0 };
    let head = |shape, targets: &[u32]| {
        let rows = targets.len();
        cpu.head(&v(2 * rows), rows, &matrix, shape, targets, &mut v(rows), &mut v(rows), &mut v(rows))
    };
    index(head(shape, &[2]), "head");
    index(head(HeadShape { vocabulary: 4, ..shape }, &[0]), "head");
    index(head(HeadShape { vocabulary: 0, ..shape }, &[]), "head");
    length(head(HeadShape { outputs: 4, ..shape }, &[0]), "head", "rows of the matrix");
    assert!(matches!(head(HeadShape { temperature: 0.0, ..shape }, &[0]), Err(KernelError::Value { .. })));
    let choice = Choice { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, greedy: false, uniform: 0.0 };
    let sample =
        |vocabulary, choice| cpu.sample(&v(3), 1, 3, vocabulary, &[], &[choice], &mut [0], &mut [0.0], &mut [0.0]);
    index(sample(4, choice), "sample");
    assert!(matches!(sample(3, Choice { uniform: 1.0, ..choice }), Err(KernelError::Value { .. })));
    assert!(matches!(sample(3, Choice { temperature: f32::NAN, ..choice }), Err(KernelError::Value { .. })));
}

#[test]
fn layouts_that_do_not_fit_are_errors() {
    let cpu = Cpu::new();
    let v = |count: usize| vec![0.0f32; count];
    let shape = AttentionShape { heads: 2, kv_heads: 1, head_dim: 2, scale: 1.0 };
    let mut blocks = cpu.blocks(2, shape).unwrap();
    let span = Span { first_row: 0, rows: 3, first_position: 0, first_entry: 0 };
    let mut store = |spans: Vec<Span>, table: Vec<u32>, k: usize, shape| {
        cpu.store(&v(k), &v(100), &Layout { spans, table }, shape, &mut blocks)
    };
    let misfit =
        |result: Result<(), KernelError>| assert!(matches!(result, Err(KernelError::Layout { .. })), "{result:?}");
    length(store(vec![span], vec![0], 5, shape), "store", "k");
    index(store(vec![span], vec![2], 6, shape), "store");
    misfit(store(vec![Span { first_row: 1, ..span }], vec![0], 6, shape));
    misfit(store(vec![Span { first_position: 14, ..span }], vec![0], 6, shape));
    misfit(store(vec![Span { first_entry: u32::MAX, ..span }], vec![0], 6, shape));
    misfit(store(vec![Span { first_position: u32::MAX, ..span }], vec![0], 6, shape));
    for wrong in [
        AttentionShape { head_dim: 4, ..shape },
        AttentionShape { kv_heads: 0, ..shape },
        AttentionShape { kv_heads: 2, head_dim: 1, ..shape },
        AttentionShape { heads: 3, kv_heads: 2, ..shape },
    ] {
        assert!(matches!(store(vec![span], vec![0], 100, wrong), Err(KernelError::Value { .. })), "{wrong:?}");
    }
    index(cpu.copy_block(&mut blocks, 0, 2), "copy_block");
    let gradient = |spans: Vec<Span>, table: Vec<u32>| {
        let (layout, b) = (Layout { spans, table }, &blocks);
        cpu.attention_gradient(&v(99), &layout, shape, b, &v(99), &v(99), &v(99), &mut v(99), &mut v(99), &mut v(99))
    };
    // The keys of positions 0 and 1 belong to no row; then two rows share a slot.
    misfit(gradient(vec![Span { first_position: 2, ..span }], vec![0]));
    misfit(gradient(vec![span, Span { first_row: 3, ..span }], vec![0]));
    assert_eq!(gradient(vec![], vec![]), Ok(()));
}
