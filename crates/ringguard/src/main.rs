//! `ringguard`: see the library.

fn main() -> std::process::ExitCode {
    ringguard::main()
}
