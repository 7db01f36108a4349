//! One job at a time into an idle pool.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use leasehold::pool::{Job, Pool};

use crate::report::{Report, median};

const ROUNDS: usize = 301;
/// Long enough for whoever waits to fall asleep.
const PAUSE: Duration = Duration::from_micros(500);

type Started = (Instant, mpsc::Sender<Duration>);

pub fn run(report: &mut Report) {
    let (sender, answers) = mpsc::channel();
    let pool = Pool::<Started>::builder().workers(2).build().expect("in range");
    let (channel, receiver) = crossbeam_channel::bounded::<Started>(1_000);
    let peer = thread::spawn(move || {
        for (start, answer) in receiver {
            answer.send(start.elapsed()).expect("somebody waits");
        }
    });
    let mut rounds = Vec::new();
    for turn in 0..ROUNDS {
        let mut nanos = [0.0; 2];
        for i in [turn % 2, (turn + 1) % 2] {
            thread::sleep(PAUSE);
            let payload = (Instant::now(), sender.clone());
            if i == 0 {
                let job = Job::new(payload, |(start, answer), _| {
                    answer.send(start.elapsed()).expect("somebody waits");
                    Ok(())
                });
                pool.try_submit(job).expect("room");
            } else {
                channel.send(payload).expect("open");
            }
            nanos[i] = answers.recv().expect("it was sent").as_nanos() as f64;
        }
        rounds.push(nanos);
    }
    drop(channel);
    peer.join().expect("no panic");
    for (i, name) in ["leasehold", "crossbeam channel"].iter().enumerate() {
        println!("{name:<40} {:>8.0} ns", median(rounds.iter().map(|round| round[i])));
    }
    println!();
    let medians = [0, 1].map(|i| median(rounds.iter().map(|round| round[i])));
    report.bar("a lone job to a crossbeam channel's wake-up", medians[0] / medians[1], 1.2);
}
