//! An LLM-style gateway over a fleet of API keys: how to embed `leasehold` in a server.
//!
//! | module | idea |
//! |---|---|
//! | [`fleet`] | the fleet file, the same as the tool's; the secrets, which are not in it |
//! | [`keys`] | an API key as a resource; the scheduler and its policies |
//! | [`proxy`] | one request: a key, an attempt, another key, a streamed answer |
//! | [`view`] | what operators look at: metrics, the fleet as JSON and as a page, why a key is chosen |
//! | [`metrics`] | what the gateway counts, beside what the scheduler counts |
//! | [`server`] | sockets: limits on clients that do not send or do not read, and an end that lets requests finish |
//! | [`app`] | all of it together, and how it shuts down |
//! | [`options`] | the command line |
//! | [`mock`] | a provider that is slow, limits, fails and breaks off, as the fleet file says |
//! | [`load`] | a client that counts, and holds its counts against the others' |
//!
//! To embed the crate in a server of your own, read [`keys`] and [`proxy`]: the rest is what any server has.

pub mod app;
pub mod fleet;
pub mod keys;
pub mod load;
pub mod metrics;
pub mod mock;
pub mod options;
pub mod proxy;
pub mod server;
pub mod view;
