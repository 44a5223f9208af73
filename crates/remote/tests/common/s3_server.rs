//! An S3 server that is a child process.

use ironstone_remote::opendal::{Operator, services};
use ironstone_vfs::{Clock, SystemClock};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const BUCKET: &str = "ironstone";

/// A server with an empty bucket, gone when this is dropped.
pub struct S3Server {
    child: Child,
    port: u16,
}

/// Where `crates/remote/install-servers.sh` puts it.
fn program() -> PathBuf {
    let servers = std::env::var_os("IRONSTONE_REMOTE_SERVERS").map(PathBuf::from);
    let servers = servers.unwrap_or_else(|| {
        // This program is in target/<profile>/deps, or in examples.
        let own = std::env::current_exe().expect("a program has a path");
        own.ancestors().nth(3).expect("it is in the target directory").join("remote-servers")
    });
    servers.join("venv/bin/moto_server")
}

impl S3Server {
    /// `None` if it is not installed, after saying so.
    pub fn start() -> Option<Self> {
        let program = program();
        if !program.exists() {
            assert!(
                std::env::var("IRONSTONE_REQUIRE_REMOTE_SERVERS").is_err(),
                "{} is required and not there: run crates/remote/install-servers.sh",
                program.display()
            );
            println!("SKIP: {} is not there: run crates/remote/install-servers.sh", program.display());
            return None;
        }
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { child, port };
        let clock = SystemClock::new();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(clock.monotonic_nanos() < 60_000_000_000, "the S3 server does not start");
            clock.sleep(Duration::from_millis(20));
        }
        let answer = server.request("PUT", &format!("/{BUCKET}"));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(server)
    }

    /// A plain request without a body, which this server takes without a signature.
    pub fn request(&self, method: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    pub fn operator(&self) -> Operator {
        operator_of(&format!("http://127.0.0.1:{}", self.port))
    }

    /// Lets the server take connections, but answer nothing.
    pub fn pause(&self) {
        self.signal("-STOP");
    }
    pub fn go_on(&self) {
        self.signal("-CONT");
    }
    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }
}

impl Drop for S3Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The bucket at `endpoint`, as the user `test`.
pub fn operator_of(endpoint: &str) -> Operator {
    let service = services::S3::default()
        .bucket(BUCKET)
        .endpoint(endpoint)
        .region("us-east-1")
        .access_key_id("test")
        .secret_access_key("test")
        .disable_config_load()
        .disable_ec2_metadata();
    ironstone_remote::opendal::install_default();
    Operator::new(service).unwrap()
}
