//! NVIDIA devices.

use cudarc::driver::{result, sys};

/// A CUDA device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeviceInfo {
    /// Its name.
    pub name: String,
    /// Its memory in bytes.
    pub memory: usize,
    /// Compute capability, major and minor.
    pub capability: (u32, u32),
    /// Whether NVRTC, which compiles the kernels, can be loaded.
    pub compiler: bool,
}

/// Looks for devices.
///
/// # Errors
/// A sentence that says what is missing: the driver's library, a device, or an answer from the driver.
pub fn probe() -> Result<Vec<DeviceInfo>, String> {
    // SAFETY: only tries to open the library.
    if !unsafe { sys::is_culib_present() } {
        return Err("the NVIDIA driver's library (libcuda) was not found".into());
    }
    let failed = |call: &'static str| move |error: cudarc::driver::DriverError| format!("{call} failed: {error:?}");
    result::init().map_err(failed("cuInit"))?;
    let count = result::device::get_count().map_err(failed("cuDeviceGetCount"))?;
    if count == 0 {
        return Err("the NVIDIA driver knows no device".into());
    }
    // SAFETY: only tries to open the library.
    let compiler = unsafe { cudarc::nvrtc::sys::is_culib_present() };
    (0..count)
        .map(|ordinal| {
            use sys::CUdevice_attribute::{
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
            };
            let device = result::device::get(ordinal).map_err(failed("cuDeviceGet"))?;
            let name = result::device::get_name(device).map_err(failed("cuDeviceGetName"))?;
            // SAFETY: `device` came from the driver just now.
            let memory = unsafe { result::device::total_mem(device) }.map_err(failed("cuDeviceTotalMem"))?;
            let attribute = |attribute| {
                // SAFETY: `device` came from the driver just now.
                unsafe { result::device::get_attribute(device, attribute) }
                    .map(|value| u32::try_from(value).unwrap_or(0))
                    .map_err(failed("cuDeviceGetAttribute"))
            };
            Ok(DeviceInfo { name, memory, capability: (attribute(MAJOR)?, attribute(MINOR)?), compiler })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn probing_a_machine_never_panics() {
        match super::probe() {
            Ok(devices) => assert!(!devices.is_empty()),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}
