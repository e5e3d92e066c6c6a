//! Random commands of several agents in one directory, then random rewinds: every byte has to be as it was.

use std::fs;

use crate::workspaces_support::look;
use crate::world::World;

/// Rewinds in `make test`; `make soak` sets `RELIVE_REWINDS` to 1,000.
const REWINDS: usize = 10;
const RUNS: usize = 3;
const STEPS: usize = 4;

/// Pseudo-random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }
}

/// One change, as an agent's command makes it. One that fails does nothing.
fn change(random: &mut Random) -> String {
    let names = ["a", "a-b", "a0", "d/a", "d/e/b", "with space", "link", "d"];
    let (one, two) = (random.pick(&names), random.pick(&names));
    let number = random.below(1_000_000);
    match random.below(9) {
        0 | 1 => format!("[ -d \"{one}\" ] || {{ rm -f \"{one}\"; echo {number} > \"{one}\"; }}"),
        2 => {
            format!("[ -d \"{one}\" ] || {{ rm -f \"{one}\"; head -c {} /dev/urandom > \"{one}\"; }}", number % 90_000)
        }
        3 => format!("mv -fT \"{one}\" \"{two}\""),
        4 => format!("rm -rf \"{one}\""),
        5 => format!("[ -L \"{one}\" ] || chmod {} \"{one}\"", random.pick(&["600", "644", "755", "700", "1755"])),
        6 => format!("ln -sfT \"{two}\" \"{one}\""),
        7 => "mkdir -p d/e empty".to_owned(),
        // As many other bytes, and the old time.
        _ => format!(
            "[ -f \"{one}\" ] && [ ! -L \"{one}\" ] && {{ touch -r \"{one}\" ../time; \
             tr 0-9 1-90 < \"{one}\" > ../other; cat ../other > \"{one}\"; touch -r ../time \"{one}\"; }}"
        ),
    }
}

#[test]
fn case_72_random_rewinds_to_steps_of_any_run_are_byte_equal() {
    let rewinds = std::env::var("RELIVE_REWINDS").map_or(REWINDS, |number| number.parse().unwrap());
    let first = std::env::var("RELIVE_SEED").map_or(1, |seed| seed.parse().unwrap());
    for seed in first..first + rewinds.div_ceil(REWINDS) as u64 {
        let (world, mut random) = (World::new(), Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        let mut states = Vec::new();
        for run in 0..RUNS {
            let commands: Vec<String> = (0..STEPS)
                .map(|step| {
                    let changes: Vec<String> = (0..5).map(|_| change(&mut random)).collect();
                    format!("{}; cp -a . ../state-{run}-{step}", changes.join("; "))
                })
                .collect();
            let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
            let process = world.run_commands(&commands, &[]);
            states.extend((0..STEPS).map(|step| (process.uuid.clone(), run, step)));
        }
        for _ in 0..REWINDS {
            let (uuid, run, step) = &states[random.below(states.len())];
            let to = (step + 1).to_string();
            let told = world.relive(&["rewind", uuid, "--to-step", &to, "--force", "--json"]).ok().json();
            assert_eq!(told["verified"], true, "seed {seed}: {told}");
            let then = look(&world.root().join(format!("state-{run}-{step}")));
            assert!(look(&world.work()) == then, "seed {seed}: step {to} of run {run}: {told}");
            if random.below(3) == 0 {
                fs::write(world.work().join("of the user"), seed.to_string()).unwrap();
            }
        }
    }
}
