//! Measures the cost of Relive, of the journal alone and of the whole path, next to the raw limit of the same disk in
//! the same run.
//!
//! Times on a shared machine mean little; ratios measured side by side mean more. So every row alternates between
//! Relive and the raw limit round by round, and reports the median of the rounds. Counts are exact. Nothing is judged
//! here: a missed goal is printed as missed, and the exit code is still 0.

mod daemon;
mod interrupt;
mod lab;
mod options;
mod place;
mod restate;
mod rounds;
mod rows;
mod runs;
mod sample;
mod table;

use std::process::ExitCode;
use std::time::Instant;

use options::{Options, usage};
use place::Place;

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", usage());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("relive-bench: {error}\n\n{}", usage());
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
    println!("place    {}", place.root().display());
    println!("disk     {}", place.file_system()?);
    println!("load     {} on {} processors, before", load()?, std::thread::available_parallelism()?);
    println!("rounds   {}, raw and ours in turn; medians; files are in the page cache (warm)", options.rounds);
    println!("ratio    the median of the rounds' ratios, not the ratio of the medians");
    println!();
    println!("{}", table::HEADER);
    let begun = Instant::now();
    let chosen: Vec<_> = rows::ALL.iter().filter(|(name, _)| options.measures(name)).collect();
    for (done, (name, measure)) in chosen.iter().enumerate() {
        eprintln!("[{}/{}] {name}, after {:.0} s", done + 1, chosen.len(), begun.elapsed().as_secs_f64());
        for row in measure(options, &place)? {
            println!("{row}");
        }
    }
    eprintln!("all after {:.0} s; load {}", begun.elapsed().as_secs_f64(), load()?);
    if options.measures(rows::COUNTS) {
        println!();
        for line in rows::counts(&place)? {
            println!("{line}");
        }
    }
    Ok(())
}

/// Returns the load averages of the last 1, 5 and 15 minutes.
fn load() -> Result<String> {
    let averages = std::fs::read_to_string("/proc/loadavg")?;
    Ok(averages.split(' ').take(3).collect::<Vec<_>>().join(" "))
}
