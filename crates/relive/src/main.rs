//! The command line.

mod demo;

use std::process::ExitCode;

const HELP: &str = "\
Relive makes an AI agent a process. So far there is its process model and its journal.

Usage: relive demo        a journal is written, killed with -9 in mid-step, recovered and forked
       relive --help
       relive --version
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args.as_slice() {
        ["demo"] => demo::run(),
        ["demo-writer", data, world] => demo::write(data.as_ref(), world.as_ref()),
        ["--version"] => {
            println!("relive {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        ["--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => {
            eprint!("error: no such command: {}\n\n{HELP}", args.join(" "));
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(1)
        }
    }
}
