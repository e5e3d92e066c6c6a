//! The shim on its own, for the tests of this crate. The real one is the `relive` program under the shim's name. With
//! `stuck` it is a program that waits in the kernel, where no freezer reaches it, until its input ends.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's program that cannot go on has failed")]

#[path = "attempt.rs"]
mod attempt;

fn main() {
    if std::env::args_os().next().is_some_and(|name| name == relive_proxy::PROXY) {
        relive_proxy::main();
    }
    match std::env::args().nth(1).as_deref() {
        Some("stuck") => stuck(),
        Some("attempt") => attempt::main(),
        Some(_) | None => relive_session::shim::main(),
    }
}

/// Lets one thread read a page that nobody provides, so that it waits in the kernel (`D`), and provides the page at the
/// end of the input. Exits with 77 if the machine does not allow it.
fn stuck() {
    use std::io::Read as _;
    const PAGE: usize = 4096;
    const UFFD_API: u64 = 0xaa;
    const REGISTER_MODE_MISSING: u64 = 1;
    const UFFDIO_API: u64 = 0xc018_aa3f;
    const UFFDIO_REGISTER: u64 = 0xc020_aa00;
    const UFFDIO_ZEROPAGE: u64 = 0xc020_aa04;
    // SAFETY: system calls on memory owned here; the page is not shared.
    let (descriptor, page) = unsafe {
        let descriptor = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        if descriptor < 0 {
            std::process::exit(77);
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        let mut api = [UFFD_API, 0, 0];
        assert_eq!(libc::ioctl(descriptor, UFFDIO_API, api.as_mut_ptr()), 0);
        let mut register = [page as u64, PAGE as u64, REGISTER_MODE_MISSING, 0];
        assert_eq!(libc::ioctl(descriptor, UFFDIO_REGISTER, register.as_mut_ptr()), 0);
        (descriptor, page as u64)
    };
    let waits = std::thread::spawn(move || {
        let mut zero = std::fs::File::open("/dev/zero").unwrap();
        // SAFETY: the page of above, as long as this program lives.
        let page = unsafe { std::slice::from_raw_parts_mut(page as *mut u8, PAGE) };
        zero.read_exact(page).unwrap();
    });
    println!("there");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).unwrap();
    let mut zeropage = [page, PAGE as u64, 0, 0];
    // SAFETY: the descriptor from above and numbers owned here.
    if unsafe { libc::ioctl(descriptor, UFFDIO_ZEROPAGE, zeropage.as_mut_ptr()) } != 0 {
        panic!("{}", std::io::Error::last_os_error());
    }
    waits.join().unwrap();
}
