//! Cases of the optimiser, its schedule and the rules that end a run.

use super::{CaseError, Comparison, Inputs, compare::elements};
use crate::algorithm::{
    adamw::{AdamW, Moments, clip_coefficient, global_norm},
    early_stop::{EmptyFilter, LowSuccess, SuccessRule, VarianceCollapse, VarianceRule},
    schedule::{Schedule, Shape},
};

pub(super) fn adamw(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    if inputs.has("grad") {
        let gradient = inputs.numbers("grad")?;
        let norm = global_norm(&[&gradient]);
        comparison.number("grad_norm_before_clip", norm);
        match clip_coefficient(norm, inputs.number("max_norm")?) {
            Some(coefficient) => {
                let clipped: Vec<f64> = gradient.iter().map(|gradient| gradient * coefficient).collect();
                comparison.number("coef", coefficient);
                comparison.numbers("clipped_grad", &clipped);
            }
            None => comparison.fail("the norm is not finite".to_owned()),
        }
        return Ok(());
    }
    let mut parameters = inputs.numbers("param")?;
    let gradients = inputs.numbers("grads")?;
    let bounds = inputs.bounds("grads")?;
    let optimiser = AdamW {
        lr: inputs.number("lr")?,
        betas: (inputs.number("beta1")?, inputs.number("beta2")?),
        epsilon: inputs.number("eps")?,
        weight_decay: inputs.number("weight_decay")?,
        ..AdamW::default()
    };
    optimiser.check()?;
    let mut moments = Moments::new(parameters.len());
    let trace = elements(comparison, "trace");
    for (index, (step, row)) in trace.iter().zip(bounds.windows(2)).enumerate() {
        optimiser.step(&mut parameters, &gradients[row[0]..row[1]], &mut moments, optimiser.lr)?;
        comparison.within(&format!("trace[{index}]"), step, |inner| {
            inner.index("step", moments.step as usize);
            inner.numbers("param", &parameters);
            inner.numbers("exp_avg", &moments.first);
            inner.numbers("exp_avg_sq", &moments.second);
        });
    }
    Ok(())
}

pub(super) fn schedule(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let shape = match (inputs.has("stable_ratio"), inputs.has("total")) {
        (true, _) => Shape::WarmupStableDecay,
        (false, true) => Shape::Cosine,
        (false, false) => Shape::Constant,
    };
    let schedule = Schedule {
        shape,
        warmup: inputs.count("warmup")? as u64,
        minimum: inputs.number_or("min_lr_ratio", 0.0)?,
        cycles: inputs.number_or("num_cycles", 0.5)?,
        stable: inputs.number_or("stable_ratio", 0.9)?,
    };
    schedule.check()?;
    let total = inputs.number_or("total", 0.0)? as u64;
    let steps = inputs.indices("steps")?;
    let factors = steps.iter().map(|&step| schedule.factor_from_zero(step as u64, total));
    comparison.numbers("factor", &factors.collect::<Vec<_>>());
    Ok(())
}

pub(super) fn early_stop(_: &str, inputs: &Inputs<'_>, comparison: &mut Comparison<'_>) -> Result<(), CaseError> {
    let one_based = |index: Option<usize>| index.map(|index| (index + 1) as f64);
    if inputs.has("in_group_reward_std") {
        let (mut rule, settings) = (VarianceCollapse::default(), VarianceRule::default());
        let deviations = inputs.numbers("in_group_reward_std")?;
        let stop = deviations.iter().position(|&deviation| rule.observe(settings, deviation));
        comparison.optional("baseline", rule.base(settings));
        comparison.optional("stop_at_step", one_based(stop));
    } else if inputs.has("val_success") {
        let mut rule = LowSuccess::default();
        let successes = inputs.numbers("val_success")?;
        let stop = successes.iter().position(|&success| rule.observe(SuccessRule::default(), success));
        comparison.optional("stop_at_validation", one_based(stop));
    } else {
        let mut rule = EmptyFilter::default();
        let (kept, limit) = (inputs.indices("kept_groups")?, inputs.count("empty_stop_steps")?);
        let stop = kept.iter().position(|&kept| rule.observe(limit, kept));
        comparison.optional("stop_at_step", one_based(stop));
    }
    Ok(())
}
