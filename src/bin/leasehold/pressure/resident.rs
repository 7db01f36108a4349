//! How much memory the process had at most, as the system says.

/// The most that was ever resident, in bytes; none where the system does not say.
pub fn peak() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// From Linux's `proc_pid_status(5)`: `VmHWM`, the peak of the resident set, in units of 1,024 bytes.
fn parse(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_found() {
        assert_eq!(parse("Name:\tx\nVmHWM:\t   2000 kB\nVmRSS:\t 1 kB\n"), Some(2_048_000));
        assert_eq!(parse("VmRSS:\t 1 kB\n"), None);
        assert_eq!(parse("VmHWM:\t some kB\n"), None);
    }
}
