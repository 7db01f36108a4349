//! The server that the processes share: a program that is started for the run, in a directory of its own and on loopback alone, or one
//! that runs already.
//!
//! It is stopped and its directory removed when [`Server`] is dropped. If the parent dies without that, its [`Orphan`] is in each of the
//! processes, which notice and do the same.

use std::{
    env, fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use leasehold::cluster::{Engine, Overview, RedisEngine, Reply, Request};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::{Error, Result};

/// The programs that are looked for, the best first.
const PROGRAMS: [&str; 2] = ["valkey-server", "redis-server"];
/// What a fleet has on its server; a test sees that nothing else is left.
const KEYS: [&str; 8] = ["meta", "sessions", "lines", "ranks", "free", "owned", "tokens", "holds"];
/// How long it may take to start, and to answer.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Server {
    /// What is told of it.
    pub name: String,
    pub address: String,
    /// A name that no other run has.
    pub fleet: String,
    own: Option<Own>,
}

/// One that is started here.
struct Own {
    program: PathBuf,
    port: u16,
    directory: TempDir,
    child: Option<Child>,
}

/// What it takes to stop the server without being its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orphan {
    port: u16,
    directory: PathBuf,
}

impl Server {
    /// The one that was asked for, or the first on the PATH. Nothing is started yet.
    pub fn find(asked: Option<&str>) -> Result<Self> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let fleet = format!("load-{}-{}", process::id(), now.as_micros());
        if let Some(address) = asked.filter(|asked| asked.contains("://")) {
            return Ok(Server {
                name: without_password(address),
                address: address.to_owned(),
                fleet,
                own: None,
            });
        }
        let program = match asked {
            Some(program) => PathBuf::from(program),
            None => PROGRAMS.into_iter().find_map(on_path).ok_or_else(|| {
                Error::Options(
                    "--processes: found no valkey-server and no redis-server on the PATH: install the package valkey-server or \
                     redis-server, or name a program or a redis:// address with --server"
                        .into(),
                )
            })?,
        };
        let fail = |cause| Error::file("--server", "has no room on this machine", cause);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(fail)?;
        let port = listener.local_addr().map_err(fail)?.port();
        let directory = tempfile::Builder::new().prefix("leasehold-load-").tempdir().map_err(fail)?;
        let name = program.file_name().map_or_else(|| "-".into(), |name| name.to_string_lossy().into_owned());
        let address = format!("redis://127.0.0.1:{port}/");
        Ok(Server { name, address, fleet, own: Some(Own { program, port, directory, child: None }) })
    }

    pub fn orphan(&self) -> Option<Orphan> {
        let own = self.own.as_ref()?;
        Some(Orphan { port: own.port, directory: own.directory.path().to_owned() })
    }

    /// Starts it, if it is not somebody else's, and sees it answer.
    pub fn start(&mut self) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.start()?;
        }
        self.overview().map(drop).map_err(Error::Options)
    }

    /// What it knows of the fleet.
    pub fn overview(&self) -> std::result::Result<Overview, String> {
        let wrong = |what: String| {
            format!("--server {}: expected a Redis 7 or Valkey server that answers: {what}", self.name)
        };
        let engine =
            RedisEngine::new(&self.fleet, [&self.address]).map_err(|error| wrong(error.to_string()))?;
        match engine.without_news().call(&Request::Overview, PATIENCE) {
            Ok(Reply::Overview(overview)) => Ok(overview),
            Ok(_) => Err(wrong("it answers something else".into())),
            Err(error) => Err(wrong(error.to_string())),
        }
    }

    /// Removes what a run leaves on somebody else's server.
    fn sweep(&self) -> redis::RedisResult<()> {
        let mut connection = redis::Client::open(&*self.address)?.get_connection_with_timeout(PATIENCE)?;
        let keys = KEYS.map(|key| format!("leasehold:{{{}}}:{key}", self.fleet));
        redis::cmd("UNLINK").arg(&keys).query(&mut connection)
    }
}

impl Own {
    fn start(&mut self) -> Result<()> {
        let shown = self.program.display().to_string();
        let mut command = Command::new(&self.program);
        command
            .args([
                "--bind",
                "127.0.0.1",
                "--port",
                &self.port.to_string(),
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--maxmemory-policy", "noeviction", "--dir"])
            .arg(self.directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            // Ctrl-C is for the parent, which still needs the server then.
            .process_group(0);
        let child = command.spawn().map_err(|cause| {
            let hint = "cannot be started; name a Redis 7 or Valkey server's program";
            Error::file(format!("--server {shown}"), hint, cause)
        })?;
        let child = self.child.insert(child);
        let end = Instant::now() + PATIENCE;
        loop {
            let wrong = |what: &str| {
                Err(Error::Options(format!("--server {shown}: expected a Redis 7 or Valkey server, {what}")))
            };
            if let Ok(Some(status)) = child.try_wait() {
                return wrong(&format!("but it ended before it listened ({status})"));
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(());
            }
            if Instant::now() > end {
                return wrong("but it does not listen");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.own {
            // What the fleet left there is small, and if it cannot be reached there is nobody to tell.
            None => drop(self.sweep()),
            Some(own) => {
                if let Some(child) = &mut own.child {
                    let _ = child.kill();
                    let _ = child.wait();
                }
            }
        }
    }
}

impl Orphan {
    /// The parent is gone: the server is told to end, and what it leaves is removed. Any number of processes may do this at once.
    pub fn stop(&self) {
        const LONGEST: Duration = Duration::from_secs(1);
        // It may just be starting.
        let end = Instant::now() + LONGEST;
        while Instant::now() < end {
            if let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                let _ = stream.set_read_timeout(Some(LONGEST));
                let _ = stream.write_all(b"SHUTDOWN NOSAVE\r\n");
                // Until it closes the connection: it has ended.
                let _ = stream.read_to_end(&mut Vec::new());
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The first program of this name on the PATH.
fn on_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// An address for a report, in which no password belongs.
fn without_password(address: &str) -> String {
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if scheme < at => {
            format!("{}{}", &address[..scheme + 3], &address[at + 1..])
        }
        _ => address.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_told() {
        assert_eq!(without_password("redis://me:secret@10.0.0.1:7/2"), "redis://10.0.0.1:7/2");
        assert_eq!(without_password("redis://10.0.0.1/"), "redis://10.0.0.1/");
    }
}
