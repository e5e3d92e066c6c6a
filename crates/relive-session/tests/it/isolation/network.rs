//! The network of a session with an allow list.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use relive_proxy::{Answers, Follower, PORT, Record, Settings, Unknown, Verdict};
use relive_sandbox::{Isolation, Network};
use relive_session::spec::Spec;
use relive_session::stage::SessionResult;

use super::world::World;
use crate::harness::*;

/// Functions for scripts: `connect HOST PORT` opens a tunnel and prints the proxy's answer and that of the server, `get` asks
/// plainly, `socks` prints the reply code. `direct` goes around the proxy.
const FUNCTIONS: &str = r#"
trap "" PIPE
open() { exec 3<>/dev/tcp/127.0.0.1/3128; }
connect() { open && printf 'CONNECT %s:%s HTTP/1.1\r\n\r\n' $1 $2 >&3 && head -n 2 <&3 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3; }
get() { open && printf 'GET http://%s:%s/ HTTP/1.1\r\nHost: other\r\n\r\n' $1 $2 >&3 && cat <&3; }
socks() { open && printf "\\5\\1\\0\\5\\1\\0\\3\\$(printf %o ${#1})%s\\$(printf %o $(($2 / 256)))\\$(printf %o $(($2 % 256)))" $1 >&3 &&
    head -c 4 <&3 | od -An -tu1; }
direct() { (exec 4<>/dev/tcp/$1/$2) 2>/dev/null; }
"#;

/// A server of this machine that answers every connection.
fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut head = [0; 512];
                let length = stream.read(&mut head).unwrap_or(0);
                let host = String::from_utf8_lossy(&head[..length]).replace("\r\n", " ");
                let _ = write!(stream, "HTTP/1.1 200 OK\r\n\r\nopen sesame {host}");
            });
        }
    });
    port
}

fn listed(world: &World, isolation: Isolation, unknown: Unknown, script: &str) -> Spec {
    let script = script.replace('\'', r"'\''");
    let mut spec = world.spec(isolation, &format!("bash -c '{}{script}'", FUNCTIONS.replace('\'', r"'\''")));
    spec.isolation.policy.network = Network::Proxy(PORT);
    let allow = ["good.localhost", "*.below.localhost"].map(|rule| rule.parse().unwrap()).to_vec();
    spec.proxy = Some(Settings { allow, unknown, ..Settings::default() });
    spec
}

async fn records(session: &Path) -> Vec<(String, Verdict)> {
    let mut follower = Follower::new(session).await.unwrap().unwrap();
    let read = follower.read().await.unwrap();
    read.into_iter().flatten().map(|Record { host, verdict, .. }| (host, verdict)).collect()
}

#[tokio::test]
async fn case_77_an_allowed_host_answers_and_others_are_refused_by_name_and_recorded() {
    for isolation in [Isolation::None, Isolation::Confined, Isolation::Sealed] {
        let Some(world) = World::new(&format!("listed-{isolation}")).await else { return };
        let port = server();
        let check = async |number: usize, script: &str, expect: &str, seen: &[(&str, Verdict)]| {
            let spec = listed(&world, isolation, Unknown::Refuse, script);
            let running = world.launch(&format!("{isolation}-{number}"), &spec).await;
            running.ended().await;
            let printed = running.printed();
            assert!(printed.contains(expect), "{isolation}: {script}: {printed}");
            let seen: Vec<_> = seen.iter().map(|(host, verdict)| ((*host).to_owned(), *verdict)).collect();
            assert_eq!(records(running.directory.path()).await, seen, "{isolation}: {script}");
        };
        let allowed = |host: &'static str| [(host, Verdict::Allowed)];
        let refused = |host: &'static str| [(host, Verdict::Refused)];
        check(0, &format!("connect good.localhost {port}"), "200 Connection established", &allowed("good.localhost"))
            .await;
        check(1, &format!("connect good.localhost {port}"), "open sesame", &allowed("good.localhost")).await;
        let host = format!("Host: a.below.localhost:{port}");
        check(2, &format!("get a.below.localhost {port}"), &host, &allowed("a.below.localhost")).await;
        check(3, &format!("socks good.localhost {port}"), "5   0", &allowed("good.localhost")).await;
        let named = "403 bad.localhost is not in the allow list";
        check(4, &format!("connect bad.localhost {port}"), named, &refused("bad.localhost")).await;
        check(5, &format!("get bad.localhost {port}"), named, &refused("bad.localhost")).await;
        check(6, &format!("socks bad.localhost {port}"), "5   2", &refused("bad.localhost")).await;
        let private = "127.0.0.1 is a private address";
        check(7, &format!("connect 127.0.0.1 {port}"), private, &refused("127.0.0.1")).await;
        check(8, "connect 169.254.169.254 80", "is a private address", &refused("169.254.169.254")).await;
        check(9, "connect [::ffff:127.0.0.1] 80", "is a private address", &refused("::ffff:127.0.0.1")).await;
        check(10, &format!("direct 127.0.0.1 {port} || echo held"), "held", &[]).await;
        check(11, "echo $https_proxy $HTTP_PROXY", "http://127.0.0.1:3128 http://127.0.0.1:3128", &[]).await;
    }
}

#[tokio::test]
async fn case_77_raw_udp_and_dns_do_not_get_past_the_proxy() {
    let Some(world) = World::new("udp").await else { return };
    let here = UdpSocket::bind("127.0.0.1:0").unwrap();
    here.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let port = here.local_addr().unwrap().port();
    let send = format!("echo sesame > /dev/udp/127.0.0.1/{port}");
    let (record, _) = world.run("none", Isolation::None, &format!("bash -c '{send}'")).await;
    assert_eq!(record.result, SessionResult::Exited(0));
    assert_eq!(here.recv(&mut [0; 16]).unwrap(), 7, "at none it arrives");
    // Whatever it asks, and whomever: there is no way out, and no name is known.
    let dns = "! echo x > /dev/udp/8.8.8.8/53 && ! echo x > /dev/udp/192.0.2.1/53 && ! getent hosts example.com";
    for isolation in [Isolation::Confined, Isolation::Sealed] {
        let spec = listed(&world, isolation, Unknown::Refuse, &format!("{send}; {dns}"));
        let (record, printed) = world.run_spec(&format!("{isolation}"), &spec).await;
        assert_eq!(record.result, SessionResult::Exited(0), "{isolation}: {printed}");
        assert!(here.recv(&mut [0; 16]).is_err(), "{isolation}: it came out");
    }
}

#[tokio::test]
async fn an_unknown_host_waits_for_an_answer() {
    let Some(world) = World::new("asked").await else { return };
    let port = server();
    let script = format!("connect new.localhost {port}; connect worse.localhost {port}");
    let running = world.launch("asked", &listed(&world, Isolation::Confined, Unknown::Ask, &script)).await;
    let mut follower = Follower::new(running.directory.path()).await.unwrap().unwrap();
    let mut answers = Answers::default();
    for host in ["new.localhost", "worse.localhost"] {
        let asked = loop {
            let read = follower.read().await.unwrap();
            if let Some(asked) = read.into_iter().flatten().find(|record| record.verdict == Verdict::Asked) {
                break asked.host;
            }
            tokio::time::timeout(PATIENCE, follower.changed()).await.expect("it asks");
        };
        assert_eq!(asked, host);
        if host == "new.localhost" { &mut answers.allowed } else { &mut answers.denied }.push(asked);
        follower.answer(&answers).await.unwrap();
    }
    running.ended().await;
    let printed = running.printed();
    assert!(
        printed.contains("open sesame") && printed.contains("403 worse.localhost was denied by the user"),
        "{printed}"
    );
    let seen = records(running.directory.path()).await;
    use Verdict::{Allowed, Asked, Refused};
    let verdicts: Vec<Verdict> = seen.into_iter().map(|(_, verdict)| verdict).collect();
    assert_eq!(verdicts, [Asked, Allowed, Asked, Refused]);
}

#[tokio::test]
async fn each_request_is_told_once_and_the_proxy_ends_with_its_session() {
    let Some(world) = World::new("told").await else { return };
    let running = world
        .launch(
            "told",
            &listed(&world, Isolation::Confined, Unknown::Refuse, "connect a.localhost 1; connect b.localhost 1"),
        )
        .await;
    running.ended().await;
    let session = running.directory.path();
    let mut follower = Follower::new(session).await.unwrap().unwrap();
    assert_eq!(follower.read().await.unwrap().unwrap().len(), 2);
    assert_eq!(follower.read().await.unwrap(), None);
    follower.keep().await.unwrap();
    assert_eq!(Follower::new(session).await.unwrap().unwrap().read().await.unwrap(), None);
    let due = std::time::Instant::now() + PATIENCE;
    while session.join(relive_proxy::SOCKET).exists() {
        assert!(std::time::Instant::now() < due, "the proxy is still there");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (record, _) = world.run("plain", Isolation::Confined, "true").await;
    assert_eq!(record.result, SessionResult::Exited(0));
}

/// Returns the anonymous memory of the proxy of a session in kB, and how many threads it has; nothing if only root may know.
fn proxy_of(session: &Path) -> Option<(u64, usize)> {
    let line = format!("{}\0{}\0", relive_proxy::PROXY, session.display());
    let pids = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let is_it =
        |pid: &String| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|found| found == line.as_bytes());
    let pid = pids.into_iter().find(is_it).unwrap();
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let anonymous = rollup.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    let anonymous = anonymous.split_ascii_whitespace().nth(1).unwrap().parse().unwrap();
    Some((anonymous, std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()))
}

#[tokio::test]
async fn a_proxy_takes_little_memory_and_few_threads() {
    // Of a build without optimisation: idle, and with this many open connections and names that nobody knows.
    const IDLE_MAX_KB: u64 = 250;
    const BUSY_MAX_KB: u64 = 3200;
    const CONNECTIONS: usize = 100;
    const THREADS_MAX: usize = 5;
    let Some(world) = World::new("memory").await else { return };
    let port = server();
    let script = format!(
        "echo idle; read line; for i in $(seq {CONNECTIONS}); do exec {{fd}}<>/dev/tcp/127.0.0.1/3128; \
         printf \"CONNECT good.localhost:{port} HTTP/1.1\\r\\n\\r\\n\" >&$fd; head -n 1 <&$fd; \
         exec {{fd}}<>/dev/tcp/127.0.0.1/3128; printf \"CONNECT x$i.invalid:1 HTTP/1.1\\r\\n\\r\\n\" >&$fd; done; \
         echo busy; read line"
    );
    let mut spec = listed(&world, Isolation::Confined, Unknown::Refuse, &script);
    spec.proxy.as_mut().unwrap().allow.push("*.invalid".parse().unwrap());
    let running = world.launch("memory", &spec).await;
    running.prints("idle").await;
    let Some((idle, _)) = proxy_of(running.directory.path()) else {
        running.connection.write(b"\n\n").await.unwrap();
        running.ended().await;
        return eprintln!("skipped: only root looks into a proxy");
    };
    running.connection.write(b"\n").await.unwrap();
    running.prints("busy").await;
    let (busy, threads) = proxy_of(running.directory.path()).unwrap();
    running.connection.write(b"\n").await.unwrap();
    running.ended().await;
    let answered = running.printed().matches("200 Connection established").count();
    eprintln!("memory of a proxy: {idle} kB idle, {busy} kB with {CONNECTIONS} connections, {threads} threads");
    assert_eq!(answered, CONNECTIONS, "{}", running.printed());
    assert!(idle <= IDLE_MAX_KB && busy <= BUSY_MAX_KB && threads <= THREADS_MAX, "{idle} kB, {busy} kB, {threads}");
}
