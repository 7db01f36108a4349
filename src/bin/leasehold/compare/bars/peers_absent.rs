//! Stands for the peers in a build without them.

use super::{Measured, Setting};

pub fn absent(_: &Setting) -> Measured {
    Measured::Absent("peers")
}

pub use {
    absent as get_against_index, absent as get_against_papaya, absent as churn_against_dashmap,
    absent as churn_against_the_better, absent as churn_against_boxes, absent as observed_against_unobserved,
    absent as shared_strings_against_unobserved, absent as strings_against_unobserved,
    absent as measured_against_unobserved, absent as sampled_against_unsampled,
    absent as sampled_in_many_shards,
};
