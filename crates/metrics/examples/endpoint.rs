//! An endpoint that Prometheus scrapes, without any server but the standard library's sockets:
//! `cargo run -p ironstone-metrics --example endpoint`, then `curl localhost:9184/metrics`.

use ironstone::{Db, Options, Statistics};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

fn answer(mut stream: TcpStream, db: &Db) -> std::io::Result<()> {
    // The request is read and not looked at: there is one answer.
    let request = BufReader::new(stream.try_clone()?);
    for line in request.lines() {
        if line?.is_empty() {
            break;
        }
    }
    let body = ironstone_metrics::text(&[("example", db)]).map_err(std::io::Error::other)?;
    let (kind, length) = (ironstone_metrics::CONTENT_TYPE, body.len());
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{body}")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::in_memory();
    options.db.statistics = Some(Arc::new(Statistics::new()));
    let db = Db::open(&options, "/example")?;
    for number in 0..10_000u32 {
        db.put(number.to_be_bytes(), "value")?;
    }
    db.flush()?;
    let listener = TcpListener::bind("127.0.0.1:9184")?;
    println!("http://{}/metrics", listener.local_addr()?);
    for stream in listener.incoming() {
        if let Err(error) = answer(stream?, &db) {
            eprintln!("{error}");
        }
    }
    Ok(())
}
