//! An HTTP server that says so when it has too much to do: a connection that finds no room in the pool's queue gets a 503 at once,
//! instead of waiting behind all others.
//!
//! ```sh
//! cargo run --example pool_http --features pool
//! ```

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use leasehold::pool::{Job, Pool};

const REQUESTS: usize = 40;

fn answer(connection: &mut TcpStream, status: &str) -> io::Result<()> {
    let length = status.len();
    let answer =
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{status}");
    connection.write_all(answer.as_bytes())
}

/// What a worker does with a connection.
fn serve(connection: &mut TcpStream) -> io::Result<()> {
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    // The work.
    thread::sleep(Duration::from_millis(20));
    answer(connection, "200 OK")
}

fn get(address: SocketAddr) -> io::Result<String> {
    let mut connection = TcpStream::connect(address)?;
    connection.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    // Two at a time, eight more may wait.
    let pool = Pool::<TcpStream>::builder().workers(2).capacity(8).build()?;

    // A burst of clients, each in a thread.
    let clients: Vec<_> = (0..REQUESTS).map(|_| thread::spawn(move || get(address))).collect();

    for connection in listener.incoming().take(REQUESTS) {
        let job = Job::new(connection?, |connection, _| Ok(serve(connection)?));
        if let Err(refused) = pool.try_submit(job) {
            // The connection is back, to be told.
            answer(&mut refused.into_job().into_payload(), "503 Service Unavailable")?;
        }
    }
    let ended = pool.shutdown(Duration::from_secs(10));

    let (mut served, mut refused) = (0, 0);
    for client in clients {
        match client.join().expect("a client does not panic") {
            Ok(status) if status.ends_with("200 OK") => served += 1,
            // A connection that was closed before its request was read may be reset: refused as well.
            _ => refused += 1,
        }
    }
    println!("{served} served, {refused} told to come back later; {ended:?}");
    assert_eq!(served, pool.stats().done);
    assert!(served > 0 && refused > 0);
    Ok(())
}
