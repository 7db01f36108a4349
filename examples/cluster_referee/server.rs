//! The server: started, killed, started again, replaced by another one.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// A server on a port of its own, with a directory of its own.
pub struct Server {
    program: String,
    pub port: u16,
    directory: PathBuf,
    child: Option<Child>,
}

impl Server {
    pub fn start(program: &str) -> io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let directory = std::env::temp_dir().join(format!("leasehold-referee-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut server = Server { program: program.to_owned(), port, directory, child: None };
        server.up()?;
        Ok(server)
    }

    /// One that is not up, with nothing.
    pub fn spare(program: &str) -> io::Result<Self> {
        let mut server = Self::start(program)?;
        server.down(true)?;
        Ok(server)
    }

    /// A command of the server's own, and the beginning of its answer.
    fn tell(&self, words: &[&str]) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        stream.write_all(text.as_bytes())?;
        let mut answer = vec![0; 1 << 14];
        let length = stream.read(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        if answer.starts_with('-') { Err(io::Error::other(answer)) } else { Ok(answer) }
    }

    /// Copies what the other one has, as it changes.
    pub fn follow(&self, other: &Server) -> io::Result<()> {
        self.tell(&["REPLICAOF", "127.0.0.1", &other.port.to_string()])?;
        let end = Instant::now() + Duration::from_secs(60);
        while !self.tell(&["INFO", "replication"])?.contains("master_link_status:up") {
            if Instant::now() > end {
                return Err(io::Error::other("the replica does not follow"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// From now on it hears nothing of what the other one has, and is a replica all the same: it serves nobody until it is promoted.
    pub fn cut_off(&self) -> io::Result<()> {
        // Nobody is there.
        self.tell(&["REPLICAOF", "127.0.0.1", "1"]).map(drop)
    }

    /// What it has of the fleet: its sessions, with their ends, and the last token.
    pub fn books(&self) -> io::Result<(String, String)> {
        let sessions = self.tell(&["ZRANGE", "leasehold:{referee}:sessions", "0", "-1", "WITHSCORES"])?;
        Ok((sessions, self.tell(&["HGET", "leasehold:{referee}:meta", "token"])?))
    }

    /// From now on it is the primary.
    pub fn promote(&self) -> io::Result<()> {
        self.tell(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Starts it, with what its log has, and waits until it listens.
    pub fn up(&mut self) -> io::Result<()> {
        let port = self.port.to_string();
        let directory = self.directory.display().to_string();
        // Before a write is answered it is in the log, which the kernel has: a kill of the server loses nothing, only one of the machine would. What
        // is lost is lost by `forget`, and by a replica that was cut off.
        let options = [
            "--port",
            &port,
            "--dir",
            &directory,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--bind",
            "127.0.0.1",
        ];
        self.child = Some(Command::new(&self.program).args(options).stdout(Stdio::null()).spawn()?);
        let end = Instant::now() + Duration::from_secs(60);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if Instant::now() > end {
                return Err(io::Error::other("the server does not listen"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Kills it; with its data, if `forget`.
    pub fn down(&mut self, forget: bool) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        if forget {
            std::fs::remove_dir_all(&self.directory)?;
            std::fs::create_dir_all(&self.directory)?;
        }
        Ok(())
    }

    /// Stops it, or lets it go on: what was sent meanwhile is carried out late.
    pub fn signal(&self, signal: &str) -> io::Result<()> {
        if let Some(child) = &self.child {
            Command::new("kill").args([signal, &child.id().to_string()]).status()?;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.down(true);
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
