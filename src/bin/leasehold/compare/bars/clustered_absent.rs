//! Stands for the cluster in a build without it.

use super::{Measured, Setting};

pub fn against_alone(_: &Setting) -> Measured {
    Measured::Absent("cluster")
}

pub fn against_plain(_: &Setting) -> Measured {
    Measured::Absent("cluster")
}
