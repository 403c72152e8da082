//! Which device computes, and on how many threads.

use std::str::FromStr;

use bevy_tasks::{ComputeTaskPool, TaskPoolBuilder};
use clap::Args;
use ragen_kernels::cuda;

use crate::failure::{Failure, Kind};
use crate::output::tell;

/// How many threads compute.
#[derive(Args, Clone, Copy, Debug)]
pub struct Threads {
    /// Threads that compute [default: all that the system offers]
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

impl Threads {
    /// Makes the pools that kernels and systems share.
    pub fn apply(self) -> Result<(), Failure> {
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new()
                .num_threads(usize::from(threads))
                .build_global()
                .map_err(|error| Failure::new(Kind::Failed, format!("cannot start {threads} threads: {error}")))?;
        }
        // The thread that runs a schedule works too, so systems have one thread less of their own.
        let own = rayon::current_num_threads() - 1;
        ComputeTaskPool::get_or_init(|| TaskPoolBuilder::new().num_threads(own).thread_name("systems".into()).build());
        Ok(())
    }
}

/// What computes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Device {
    /// The best that this build and this machine offer.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A CUDA device by its number.
    Cuda(u32),
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_prefix("cuda:").map(str::parse::<u32>);
        match (text, number) {
            ("auto", _) => Ok(Self::Auto),
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(number))) => Ok(Self::Cuda(number)),
            _ => Err("expected auto, cpu or cuda:N".to_owned()),
        }
    }
}

/// The device of a command.
#[derive(Args, Clone, Copy, Debug)]
pub struct DeviceArguments {
    /// Where to compute: auto, cpu or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Device,
}

impl DeviceArguments {
    /// Refuses what this build cannot do and says what it leaves unused.
    pub fn check(self) -> Result<(), Failure> {
        match self.device {
            Device::Cpu => Ok(()),
            Device::Auto => {
                if let Some(device) = cuda::probe().ok().and_then(|found| found.into_iter().next()) {
                    tell(&format!("note: {} is not used; this build computes on the CPU", device.name));
                }
                Ok(())
            }
            Device::Cuda(number) => {
                let seen = match cuda::probe() {
                    Ok(devices) => match devices.get(number as usize) {
                        Some(device) => format!("the machine has {}", device.name),
                        None => format!("the machine has no CUDA device {number}"),
                    },
                    Err(reason) => reason,
                };
                let message = format!("--device cuda:{number}: this build computes on the CPU; {seen}");
                Err(Failure::new(Kind::Configuration, message).with_help("use --device cpu, or leave --device out"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_named_as_documented() {
        assert_eq!("auto".parse(), Ok(Device::Auto));
        assert_eq!("cuda:3".parse(), Ok(Device::Cuda(3)));
        for wrong in ["gpu", "cuda:", "cuda:x", "cuda:-1", ""] {
            assert!(wrong.parse::<Device>().is_err(), "{wrong}");
        }
    }
}
