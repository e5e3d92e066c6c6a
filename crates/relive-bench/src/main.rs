//! What Relive costs, the journal alone and the whole path, beside the raw limit of the same disk in the same run.
//!
//! Times on a shared machine mean little; ratios taken side by side mean more. So every row interleaves ours and the
//! raw limit round by round, and says the median of the rounds. Counts are exact. Nothing is judged here: a missed mark
//! is printed as missed and the program still ends well.

mod daemon;
mod interrupt;
mod lab;
mod options;
mod place;
mod rounds;
mod rows;
mod sample;
mod table;

use std::process::ExitCode;

use options::{Options, USAGE};
use place::Place;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("relive-bench: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relive-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let place = Place::new()?;
    interrupt::clean_up_on_signals(place.root().to_owned())?;
    println!("directory   {}", place.root().display());
    println!("disk     {}", place.file_system()?);
    println!("rounds   {}, raw and ours in turn; medians; files are in the page cache (warm)", options.rounds);
    println!("ratio    the median of the rounds' ratios, not the ratio of the medians");
    println!();
    println!("{}", table::HEADER);
    for (name, measure) in rows::ALL {
        if options.only.as_deref().is_some_and(|only| only != name) {
            continue;
        }
        for row in measure(options, &place)? {
            println!("{row}");
        }
    }
    if options.only.as_deref().is_none_or(|only| only == rows::COUNTS) {
        println!();
        for line in rows::counts(&place)? {
            println!("{line}");
        }
    }
    Ok(())
}
