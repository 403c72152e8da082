//! Which instructions the kernels use.

/// An instruction set that this machine has.
///
/// Results do not depend on it: every path performs the same operations in the same order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Isa {
    /// Plain Rust, on any machine.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// Every set that this machine has, the fastest last.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut sets = vec![Self::PORTABLE];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                sets.push(Self(Kind::Avx2));
                if ["avx512f", "avx512vl", "avx512dq", "avx512bw"].into_iter().all(detected) {
                    sets.push(Self(Kind::Avx512));
                }
            }
        }
        sets
    }

    /// The fastest set that this machine has.
    #[must_use]
    pub fn best() -> Self {
        Self::available().pop().unwrap_or(Self::PORTABLE)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => "avx2+fma",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512 => "avx512",
        }
    }

    #[inline(always)]
    pub(crate) fn kind(self) -> Kind {
        self.0
    }
}

#[cfg(target_arch = "x86_64")]
fn detected(feature: &str) -> bool {
    match feature {
        "avx512f" => is_x86_feature_detected!("avx512f"),
        "avx512vl" => is_x86_feature_detected!("avx512vl"),
        "avx512dq" => is_x86_feature_detected!("avx512dq"),
        "avx512bw" => is_x86_feature_detected!("avx512bw"),
        _ => false,
    }
}

/// Compiles a function once per instruction set and picks one by an [`Isa`] that becomes its first argument.
macro_rules! kernel {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "arrays and their shape")]
        $vis fn $name(isa: $crate::cpu::isa::Isa, $($arg: $type),*) $(-> $result)? {
            #[allow(clippy::too_many_arguments, reason = "arrays and their shape")]
            #[inline(always)]
            fn portable($($arg: $type),*) $(-> $result)? $body

            #[allow(clippy::too_many_arguments, reason = "arrays and their shape")]
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $type),*) $(-> $result)? {
                portable($($arg),*)
            }

            #[allow(clippy::too_many_arguments, reason = "arrays and their shape")]
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")]
            fn avx512($($arg: $type),*) $(-> $result)? {
                portable($($arg),*)
            }

            match isa.kind() {
                $crate::cpu::isa::Kind::Portable => portable($($arg),*),
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa` makes this value only where AVX2 and FMA were detected.
                $crate::cpu::isa::Kind::Avx2 => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: `Isa` makes this value only where AVX2, FMA and these parts of AVX-512 were detected.
                $crate::cpu::isa::Kind::Avx512 => unsafe { avx512($($arg),*) },
            }
        }
    };
}
pub(crate) use kernel;
