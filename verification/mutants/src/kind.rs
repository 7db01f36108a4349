//! The builds of the library: for the ordinary tests, and for the two model checkers.

/// How a build is made, and how its tests are run.
pub struct Kind {
    pub name: &'static str,
    /// For the compiler.
    pub flags: &'static str,
    /// For cargo: which tests.
    targets: &'static [&'static str],
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

impl Kind {
    /// Which tests are built and run; of the ordinary ones those that `MUTANTS_TESTS` names, if it does.
    pub fn targets(&self) -> Vec<String> {
        let asked = std::env::var("MUTANTS_TESTS").ok().filter(|_| self.name == PLAIN.name);
        match asked {
            Some(asked) => asked.split_whitespace().map(str::to_owned).collect(),
            None => self.targets.iter().map(|&target| target.to_owned()).collect(),
        }
    }
}

/// The kind with this name.
pub fn named(name: &str) -> Option<&'static Kind> {
    [&PLAIN, &SHUTTLE, &LOOM].into_iter().find(|kind| kind.name == name)
}
