//! An HTTP server that says so when it has too much to do: a connection that finds no room in the pool's queue gets a 503 instead of waiting
//! behind all others. A thread of its own says so: who accepts connections waits for no client.
//!
//! ```sh
//! cargo run --example pool_http --features pool
//! ```

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Barrier, mpsc},
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

/// What is done with a connection for which there is no room. What has been sent is read first, for as long as one may keep the
/// others that are refused waiting: who hangs up on unread bytes resets the connection, and the client may never see the answer.
fn refuse(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(Duration::from_millis(50)))?;
    let mut lines = BufReader::new(connection.try_clone()?).lines();
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    answer(&mut connection, "503 Service Unavailable")
}

fn get(address: SocketAddr, burst: &Barrier) -> io::Result<String> {
    let connection = TcpStream::connect(address);
    burst.wait();
    let mut connection = connection?;
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

    // A burst of clients, each in a thread: all have connected before the first is accepted.
    let burst = Arc::new(Barrier::new(REQUESTS + 1));
    let client = |_| {
        let burst = Arc::clone(&burst);
        thread::spawn(move || get(address, &burst))
    };
    let clients: Vec<_> = (0..REQUESTS).map(client).collect();
    burst.wait();

    // Has a bound as well: whoever finds even this line full is hung up on.
    let (refused, to_refuse) = mpsc::sync_channel::<TcpStream>(REQUESTS);
    let refuses = thread::spawn(move || to_refuse.into_iter().try_for_each(refuse));
    for connection in listener.incoming().take(REQUESTS) {
        let job = Job::new(connection?, |connection, _| Ok(serve(connection)?));
        if let Err(back) = pool.try_submit(job) {
            // The connection is back, to be told.
            let _ = refused.try_send(back.into_job().into_payload());
        }
    }
    drop(refused);
    refuses.join().expect("it does not panic")?;
    let ended = pool.shutdown(Duration::from_secs(60));

    let (mut served, mut told, mut reset) = (0, 0, 0);
    for client in clients {
        match client.join().expect("a client does not panic") {
            Ok(status) if status == "HTTP/1.1 200 OK" => served += 1,
            Ok(status) if status == "HTTP/1.1 503 Service Unavailable" => told += 1,
            // One whose request had not come by the time it was refused.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => reset += 1,
            other => return Err(format!("neither served nor refused: {other:?}").into()),
        }
    }
    println!("{served} served, {told} told to come back later, {reset} reset; {ended:?}");
    let stats = pool.stats();
    assert_eq!((served, told + reset), (stats.done, stats.rejected_full));
    assert!(served > 0 && told > 0);
    Ok(())
}
