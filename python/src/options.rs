//! The arguments that say how to read: `io=` and `memory=`.

use blockring::{AllowMmap, Config, EngineKind, Stop, parse_size};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict};

/// Returns the configuration for the arguments `io` and `memory`, which ends at `stop`.
pub(crate) fn config_of(
    io: Option<&Bound<'_, PyDict>>,
    memory: Option<&Bound<'_, PyAny>>,
    stop: &Stop,
) -> PyResult<Config> {
    let mut config = Config::default();
    for (key, value) in io.into_iter().flatten() {
        let key: String = key.extract()?;
        let key = key.replace('_', "-");
        let value = value_of(&value)?;
        config.set(&key, &value).map_err(|error| PyValueError::new_err(format!("io: {error}")))?;
    }
    if config.io.engine == Some(EngineKind::Mmap) {
        #[expect(unsafe_code)]
        // SAFETY: bytes that change while they are hashed give a wrong digest, which the run's last
        // check discards.
        let allowed = unsafe { AllowMmap::new() };
        config = config.allow_mmap(allowed);
    }
    config.memory.limit_bytes = memory.map(size_of).transpose()?;
    config.io.stop = Some(stop.clone());
    config.validate().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(config)
}

/// Returns the text of an option.
fn value_of(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(switch) = value.cast::<PyBool>() {
        return Ok(if switch.is_true() { "on" } else { "off" }.to_owned());
    }
    if let Ok(number) = value.extract::<u64>() {
        return Ok(number.to_string());
    }
    let text = value.extract::<String>();
    text.map_err(|_| PyTypeError::new_err("io: a value is a str, an int or a bool"))
}

/// Returns a number of bytes: an `int`, or a text with a unit.
pub(crate) fn size_of(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    if let Ok(bytes) = value.extract::<u64>() {
        return Ok(bytes);
    }
    let text: String = value.extract()?;
    parse_size(&text).ok_or_else(|| {
        let why = format!("{text:?} is no size in bytes, such as 64M, 1GiB or 65536");
        PyValueError::new_err(why)
    })
}
