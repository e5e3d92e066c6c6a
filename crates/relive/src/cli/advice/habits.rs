//! What people type from the habit of other tools, and the command that does it here.

/// Commands of other tools, and ours. `ID` is what was typed after the command; with a `TEXT`, only the first word of it.
pub(super) const COMMANDS: &[(&str, &str)] = &[
    ("stop halt", "relive pause ID` or `relive kill ID"),
    ("start unpause continue", "relive resume ID"),
    ("restart", "relive kill ID; relive wait ID; relive resume ID"),
    ("status inspect show describe is-active", "relive info ID"),
    ("ls list list-units container", "relive ps"),
    ("htop watch", "relive top"),
    ("tail follow", "relive logs -f ID"),
    ("remove delete del", "relive rm ID"),
    ("prune clean cleanup system", "relive gc --dry-run"),
    ("cancel end terminate", "relive kill ID"),
    ("approve allow", "relive resolve ID --allow"),
    ("reject deny", "relive resolve ID --deny"),
    ("undo", "relive rewind ID --undo"),
    ("cost costs stats", "relive usage"),
    ("fork clone branch", "relive resume --fork ID"),
    ("freeze suspend", "relive pause ID"),
    ("thaw unfreeze wake", "relive resume ID"),
    ("jobs tasks agents processes", "relive ps"),
    ("tree pstree", "relive ps --tree"),
    ("log history journalctl", "relive logs ID"),
    ("events trace", "relive strace ID"),
    ("answer reply", "relive resolve ID --answer TEXT"),
    ("message msg say tell", "relive send ID TEXT"),
    ("notifications todo", "relive inbox"),
    ("check setup", "relive doctor"),
    ("edit", "relive config edit"),
    ("daemon-reload", "relive daemon restart"),
    ("bg", "relive resume ID"),
    ("fg join", "relive attach ID"),
    ("model models", "relive config show"),
    ("export dump", "relive logs --json ID"),
    ("create new spawn", "relive run TEXT"),
];

const COMPOSE: &[(&str, &str)] = &[
    ("ps ls list show info", "relive compose status ID"),
    ("stop rm kill delete remove", "relive compose down ID"),
    ("start run create", "relive compose up ID"),
];

const DAEMON: &[(&str, &str)] = &[
    ("logs log", "relive paths"),
    ("reload", "relive daemon restart"),
    ("enable", "relive daemon install"),
    ("info show ps", "relive daemon status"),
    ("kill", "relive daemon stop"),
];

const INBOX: &[(&str, &str)] = &[("ls list show", "relive inbox --list"), ("clear done", "relive inbox ack --all")];

const CONFIG: &[(&str, &str)] = &[("get list ls cat print", "relive config show"), ("set", "relive config edit")];

const WORKSPACE: &[(&str, &str)] = &[("ls", "relive workspace list"), ("remove delete", "relive workspace rm ID")];

/// Commands that have commands of their own, with what other tools call those.
pub(super) const GROUPS: &[(&str, &[(&str, &str)])] =
    &[("compose", COMPOSE), ("config", CONFIG), ("daemon", DAEMON), ("inbox", INBOX), ("workspace", WORKSPACE)];

/// Options of other tools that are not needed here, or that take a value and have one of ours in their place.
pub(super) const DROPPED: &[(&str, &str, &str)] = &[
    ("ps", "--format", "--json VALUE"),
    ("ps", "--output", "--json VALUE"),
    ("run", "-t", ""),
    ("run", "--tty", ""),
    ("run", "--rm", ""),
];

/// Options of other tools, and ours.
pub(super) const OPTIONS: &[(&str, &str, &str)] = &[
    ("rm", "-f", "-y"),
    ("rm", "--force", "-y"),
    ("logs", "--tail", "-n"),
    ("ps", "-A", "-a"),
    ("ps", "-e", "-a"),
    ("ps", "-l", "-a"),
    ("run", "-m", "--model"),
    ("resume", "-m", "--model"),
    ("exec", "-e", "--env"),
    ("exec", "-w", "--cwd"),
    ("enter", "-e", "--env"),
];
