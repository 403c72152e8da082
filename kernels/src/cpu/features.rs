//! What this machine offers.

use super::isa::Isa;

/// What the CPU offers and what the kernels use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Features {
    /// Instruction set that the kernels use.
    pub instruction_set: &'static str,
    /// Physical cores, where the system tells; otherwise as `threads`.
    pub cores: usize,
    /// Threads that this process may run at once.
    pub threads: usize,
}

/// Asks the CPU and the system.
#[must_use]
pub fn features() -> Features {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Features { instruction_set: Isa::best().name(), cores: physical_cores().unwrap_or(threads), threads }
}

/// Distinct sets of sibling threads, from Linux's description of the processors.
fn physical_cores() -> Option<usize> {
    let mut siblings = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir("/sys/devices/system/cpu").ok()?.flatten() {
        if let Ok(list) = std::fs::read_to_string(entry.path().join("topology/thread_siblings_list")) {
            siblings.insert(list);
        }
    }
    (!siblings.is_empty()).then_some(siblings.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_a_core_and_an_instruction_set() {
        let features = features();
        assert!(features.cores >= 1 && features.threads >= 1);
        assert!(Isa::available().iter().any(|isa| isa.name() == features.instruction_set));
    }
}
