//! What stands between a process and its servers: it lets everything through, or holds it back, and then it comes late.
//!
//! Each connection has two threads. While the gate is closed new connections are made, and nothing is heard on them; what was sent meanwhile is
//! carried out when it opens, also of connections that the process has given up.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
};

/// The gate of a process: all its connections pass it, in both directions.
#[derive(Default)]
pub struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn close(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    pub fn open(&self) {
        *self.closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.opened.notify_all();
    }

    /// Waits while it is closed.
    fn pass(&self) {
        let closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.opened.wait_while(closed, |closed| *closed));
    }
}

/// Bytes from one end to the other, until one of them ends.
fn carry(mut from: TcpStream, mut to: TcpStream, gate: &Gate) {
    let mut bytes = [0; 1 << 14];
    loop {
        let read = from.read(&mut bytes).unwrap_or(0);
        gate.pass();
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            // Nobody is told that it ends before he has heard what came before.
            let _ = to.shutdown(Shutdown::Write);
            let _ = from.shutdown(Shutdown::Read);
            return;
        }
    }
}

fn connect(client: TcpStream, target: u16, gate: &Arc<Gate>) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", target))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        let gate = Arc::clone(gate);
        thread::spawn(move || carry(from, to, &gate));
    }
    Ok(())
}

/// A port behind which the server on another port is, and the gate. For as long as the process lives.
pub fn start(target: u16, gate: &Arc<Gate>) -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    let gate = Arc::clone(gate);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            // Where no server is the client is dropped.
            let _ = connect(client, target, &gate);
        }
    });
    Ok(port)
}
