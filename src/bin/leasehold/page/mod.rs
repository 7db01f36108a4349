//! `leasehold report`: one HTML file from any set of results, for people and for good.
//!
//! Everything is in the file: no script, no font, no picture from elsewhere. It is readable in the dark, on a phone and
//! printed. Behind each chart is a table with what it shows.
//!
//! | file | idea |
//! |---|---|
//! | [`input`] | results of other commands, read and told apart |
//! | [`section`] | what is shown of one result of `load` or `replay` |
//! | [`order`], [`compare`], [`tune`], [`pressure`] | what is shown of results of these |
//! | [`chart`] | drawn with `plotters` as SVG |
//! | [`html`], [`table`] | the document; tables |

mod chart;
mod compare;
mod html;
mod input;
mod order;
mod pressure;
mod section;
mod table;
mod tune;

use std::path::PathBuf;

pub use self::table::count;

use clap::Args;

use crate::{error::Result, output::Output};

#[derive(Args, Debug)]
pub struct Report {
    /// Results of `load`, `replay`, `order`, `compare`, `tune` or `pressure`, as JSON.
    #[arg(value_name = "FILE", required = true)]
    pub results: Vec<PathBuf>,

    /// Write the page to FILE instead of standard output (`-`): whole or not at all.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,

    /// What the page is called.
    #[arg(long, value_name = "TEXT", default_value = "leasehold: measured")]
    pub title: String,
}

pub fn report(options: &Report) -> Result<()> {
    let results: Vec<_> = options.results.iter().map(|path| ("a result", Some(&**path))).collect();
    let output = Output::open(options.out.as_deref(), &results)?;
    let inputs = options.results.iter().map(|path| input::read(path)).collect::<Result<Vec<_>>>()?;
    output.write(&html::page(&options.title, &inputs))
}
