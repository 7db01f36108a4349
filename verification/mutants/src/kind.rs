//! The builds of the library: for the ordinary tests, and for the two model checkers.

/// How a build is made, and how its tests are run.
pub struct Kind {
    pub name: &'static str,
    /// For the compiler.
    pub flags: &'static str,
    /// For cargo: which tests.
    pub targets: &'static [&'static str],
    /// For the tests: fixed seeds, and sizes that suit being run hundreds of times.
    pub environment: &'static [(&'static str, &'static str)],
}

/// The ordinary tests. The models' targets are empty here.
pub static PLAIN: Kind = Kind {
    name: "plain",
    flags: "",
    targets: &["--lib", "--tests"],
    environment: &[
        ("PROPTEST_RNG_SEED", "1"),
        ("PROPTEST_CASES", "250"),
        ("HISTORIES", "200"),
        ("STRESS_OPERATIONS", "20000"),
    ],
};

pub static SHUTTLE: Kind = Kind {
    name: "shuttle",
    flags: "--cfg shuttle",
    targets: &["--test", "shuttle"],
    environment: &[("SHUTTLE_ITERATIONS", "300"), ("SHUTTLE_SILENCE_WARNINGS", "1")],
};

pub static LOOM: Kind = Kind {
    name: "loom",
    flags: "--cfg loom --cfg crossbeam_loom",
    targets: &["--test", "loom"],
    environment: &[("LOOM_MAX_PREEMPTIONS", "2"), ("LOOM_MAX_DURATION", "3")],
};

/// The kind with this name.
pub fn named(name: &str) -> Option<&'static Kind> {
    [&PLAIN, &SHUTTLE, &LOOM].into_iter().find(|kind| kind.name == name)
}
