//! The gateway, and the mock provider if there is no other.

use std::{
    error::Error,
    io::{self, IsTerminal},
    process::ExitCode,
};

use clap::Parser;
use gateway::{
    app::{Gateway, Settings},
    mock::Mock,
    options::Options,
    server::Bounds,
};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::{layer::SubscriberExt, util::SubscriberInitExt};

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    match run(options).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("gateway: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(options: Options) -> Result<ExitCode, Box<dyn Error + Send + Sync>> {
    let writer =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(writer).with(options.log.clone()).init();
    // Before anything can be asked for: a signal that comes early is not lost.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;

    let fleet = options.fleet()?;
    let secrets = options.secrets(&fleet)?;
    let (mock, provider) = match &options.provider {
        Some(provider) => (None, provider.clone()),
        None => {
            let mock = Mock::start(&fleet, options.mock()).await?;
            let provider = mock.uri();
            (Some(mock), provider)
        }
    };
    let gateway = Gateway::start(Settings {
        fleet,
        secrets,
        provider: provider.clone(),
        listen: options.listen,
        admin: options.admin,
        policy: options.policy(),
        limits: options.limits(),
        bounds: Bounds::default(),
        tells_key: options.tell_key,
    })
    .await?;
    greet(&gateway, &provider, mock.is_some());

    let mut told = async || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    told().await;
    println!("draining: requests have {:?} to finish; told again, they are broken off", options.drain);
    let end = tokio::select! {
        end = gateway.shut_down(options.drain) => end,
        () = told() => return Err("told to end twice: requests were broken off".into()),
    };
    if end.is_clean() {
        println!("drained");
        return Ok(ExitCode::SUCCESS);
    }
    if !end.is_graceful {
        eprintln!("gateway: requests did not finish within {:?} and were broken off", options.drain);
    }
    if !end.drain.is_drained() {
        eprintln!("gateway: {}", end.drain);
    }
    Ok(ExitCode::FAILURE)
}

fn greet(gateway: &Gateway, provider: &http::Uri, is_mock: bool) {
    let (clients, admin) = (gateway.address(), gateway.admin());
    println!("clients   http://{clients}/");
    println!("fleet     http://{admin}/fleet");
    println!("metrics   http://{admin}/metrics");
    println!("provider  {provider}{}", if is_mock { " (mock)" } else { "" });
    println!("try       curl -N http://{clients}/v1/chat/completions -d '{{\"max_tokens\":32}}'");
}
