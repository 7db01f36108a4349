//! The server: started, killed, started again.

use std::{
    io,
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
        let directory = std::env::temp_dir().join(format!("leasehold-referee-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut server = Server { program: program.to_owned(), port, directory, child: None };
        server.up()?;
        Ok(server)
    }

    /// Starts it, with what its log has, and waits until it listens.
    pub fn up(&mut self) -> io::Result<()> {
        let port = self.port.to_string();
        let directory = self.directory.display().to_string();
        // The log is written out every second: a kill loses the end of it.
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
        let end = Instant::now() + Duration::from_secs(10);
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
