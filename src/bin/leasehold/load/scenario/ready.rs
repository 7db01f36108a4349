//! The scenarios that have a name.

/// A scenario that comes with the tool.
pub struct Ready {
    pub name: &'static str,
    /// One line for the help.
    pub about: &'static str,
    pub text: &'static str,
    /// Who plays too, in a build that has them.
    pub peers: &'static [&'static str],
}

/// Other people's pools. Most scenarios ask for something that they do not have.
const PEERS: &[&str] = if cfg!(feature = "peers") { &["deadpool", "bb8"] } else { &[] };

macro_rules! ready {
    ($name:literal, $about:literal) => {
        ready!($name, $about, &[])
    };
    ($name:literal, $about:literal, $peers:expr) => {
        Ready {
            name: $name,
            about: $about,
            text: include_str!(concat!("ready/", $name, ".toml")),
            peers: $peers,
        }
    };
}

/// All of them, in the order of the help.
pub const READY: [Ready; 9] = [
    ready!("gateway", "API keys behind a gateway: limited, rate-limited, least loaded"),
    ready!("scraper", "proxies that must rest after each use, and often fail"),
    ready!("replicas", "database replicas: reads of a millisecond, affinity, peeks"),
    ready!("gpu", "few exclusive nodes, long leases, a queue with deadlines", PEERS),
    ready!("ten-thousand", "10,000 callers on 1,000 resources"),
    ready!("thundering-herd", "everybody at once, every half second", PEERS),
    ready!("flapping", "a fifth of the fleet works and fails in turns"),
    ready!("churn", "resources come, go and change their priority all the time"),
    ready!("soak", "everything at once, for as long as you like; memory is watched"),
];

impl Ready {
    pub fn named(name: &str) -> Option<&'static Ready> {
        READY.iter().find(|ready| ready.name == name)
    }
}
