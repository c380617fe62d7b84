//! A TCP proxy that a test puts between two parts and then cuts, freezes or heals.

use std::net::SocketAddr;

use anyhow::Context as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What the cable does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Passes everything.
    Whole,
    /// Open connections were reset, new ones are closed at once.
    Cut,
    /// Connections stay open, bytes go nowhere: what a lost route looks like.
    Frozen,
}

/// The cable between two parts. Whole at first; gone when dropped.
#[derive(Debug)]
pub struct Cable {
    address: SocketAddr,
    state: watch::Sender<State>,
    tasks: JoinSet<()>,
}

impl Cable {
    /// Listens on a free port and passes everything on to `target`.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn to(target: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a cable's port")?;
        let address = listener.local_addr()?;
        let (state, receiver) = watch::channel(State::Whole);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, target, receiver));
        Ok(Self { address, state, tasks })
    }

    /// Where the near part connects to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes what is open and refuses what comes.
    pub fn cut(&self) {
        self.state.send_replace(State::Cut);
    }

    /// Keeps connections open but passes nothing.
    pub fn freeze(&self) {
        self.state.send_replace(State::Frozen);
    }

    /// Passes everything again.
    pub fn heal(&self) {
        self.state.send_replace(State::Whole);
    }

    /// Whether its accepting task still runs.
    pub fn is_up(&self) -> bool {
        !self.tasks.is_empty()
    }
}

async fn accept(listener: TcpListener, target: SocketAddr, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let Ok((near, _)) = listener.accept().await else { continue };
        if *state.borrow() != State::Cut {
            connections.spawn(join(near, target, state.clone()));
        }
    }
}

/// Passes bytes both ways until either side ends or the cable is cut.
async fn join(mut near: TcpStream, target: SocketAddr, mut state: watch::Receiver<State>) {
    if state.wait_for(|state| *state != State::Frozen).await.is_err() {
        return;
    }
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let (mut near_read, mut near_write) = near.split();
    let (mut far_read, mut far_write) = far.split();
    let mut cut = state.clone();
    tokio::select! {
        () = pass(&mut near_read, &mut far_write, state.clone()) => {}
        () = pass(&mut far_read, &mut near_write, state.clone()) => {}
        _ = cut.wait_for(|state| *state == State::Cut) => {}
    }
}

async fn pass(
    from: &mut (impl tokio::io::AsyncRead + Unpin),
    to: &mut (impl tokio::io::AsyncWrite + Unpin),
    mut state: watch::Receiver<State>,
) {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        if state.wait_for(|state| *state != State::Frozen).await.is_err() {
            return;
        }
        let Some(read) = buffer.get(..count) else { return };
        if to.write_all(read).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn echo_server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut servers = JoinSet::new();
        servers.spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let (mut read, mut write) = socket.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            }
        });
        servers.detach_all();
        address
    }

    async fn echo(socket: &mut TcpStream) -> std::io::Result<[u8; 2]> {
        let mut answer = [0; 2];
        socket.write_all(b"hi").await?;
        socket.read_exact(&mut answer).await?;
        Ok(answer)
    }

    #[tokio::test]
    async fn passes_freezes_heals_and_cuts() {
        let cable = Cable::to(echo_server().await).await.unwrap();
        let mut socket = TcpStream::connect(cable.address()).await.unwrap();
        assert_eq!(&echo(&mut socket).await.unwrap(), b"hi");

        cable.freeze();
        let frozen = tokio::time::timeout(Duration::from_millis(200), echo(&mut socket)).await;
        assert!(frozen.is_err(), "nothing passes a frozen cable");
        cable.heal();
        let mut late = [0; 2];
        socket.read_exact(&mut late).await.unwrap();
        assert_eq!(&late, b"hi", "what waited comes through");

        cable.cut();
        assert_eq!(socket.read(&mut late).await.unwrap_or(0), 0, "a cut closes what is open");
        assert!(cable.is_up());
    }
}
