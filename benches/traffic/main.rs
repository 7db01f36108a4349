//! Counts what an operation costs in traffic between cores: read-modify-writes, stores and loads of words that threads
//! share, and the cache lines that must come from another core. Only in the build that counts:
//!
//! ```sh
//! RUSTFLAGS='--cfg leasehold_counted' cargo run --release --manifest-path benches/Cargo.toml \
//!     --target-dir target/counted --bin traffic
//! ```
//!
//! Threads take turns, one operation each, so the counts follow from the sources and not from the machine: each thread
//! finds what all others have done since its last operation. That is the most that can be between two of its operations
//! if all are equally fast. With a file's name it also writes what the program `queueing` needs.

#[cfg(leasehold_counted)]
mod count;
#[cfg(leasehold_counted)]
mod operations;

#[cfg(leasehold_counted)]
fn main() {
    let lines = count::print();
    if let Some(path) = std::env::args().nth(1) {
        std::fs::write(path, lines).expect("the file can be written");
    }
}

#[cfg(not(leasehold_counted))]
fn main() -> std::process::ExitCode {
    eprintln!("nothing is counted in this build: RUSTFLAGS='--cfg leasehold_counted'");
    std::process::ExitCode::FAILURE
}
