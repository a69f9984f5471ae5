//! C's `pow` and `log`, so that the binary does not need libm.so.
//!
//! The progress bar's estimate of the rate calls `pow`, and SQLite's full-text search, which is not used
//! here, `log`. Loading one more shared library took 80 us of the 850 us in which a 1,000-byte file is hashed. A
//! symbol of the executable takes precedence over one of a library.
#![allow(unsafe_code)]

// SAFETY: the signature is that of C's `pow`, and so is the meaning.
#[unsafe(no_mangle)]
extern "C" fn pow(base: f64, exponent: f64) -> f64 {
    libm::pow(base, exponent)
}

// SAFETY: the signature is that of C's `log`, and so is the meaning.
#[unsafe(no_mangle)]
extern "C" fn log(x: f64) -> f64 {
    libm::log(x)
}
