//! A repository that wants to run something, to block, or to fill the disk.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::world::{World, copy_program, write_program};

#[test]
fn a_link_in_place_of_the_directory_is_not_followed_by_a_snapshot() {
    let world = World::new();
    let outside = world.root().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("keep"), "of somebody else\n").unwrap();
    let replace = "cd ..; mv work work.old; ln -s outside work";
    let process = world.run_commands(&["echo 1 > a", replace, "true"], &[]);
    let steps = world.relive(&["steps", "--json", &process.uuid]).ok().json();
    assert_eq!(steps["steps"][1]["files_unknown"], true, "{steps}");
    assert!(!world.relive(&["diff", &process.uuid]).ok().stdout.contains("somebody else"));
}

#[test]
fn case_74_a_hostile_repository_runs_nothing_blocks_nothing_and_loses_no_snapshot_of_the_rest() {
    let world = World::new();
    let work = world.work();
    let trap = world.root().join("trap");
    let program = world.root().join("program");
    write_program(&program, &format!("#!/bin/sh\ntouch {}\ncat\n", trap.display()));
    fs::create_dir_all(work.join(".git/hooks")).unwrap();
    fs::create_dir_all(work.join(".git/refs/heads")).unwrap();
    fs::write(work.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    let config = format!(
        "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {0}\n\thooksPath = {1}\n\tpager = {0}\n\
         [filter \"evil\"]\n\tclean = {0}\n\tsmudge = {0}\n\trequired = true\n[diff]\n\texternal = {0}\n\
         [include]\n\tpath = fifo\n",
        program.display(),
        work.join(".git/hooks").display()
    );
    fs::write(work.join(".git/config"), &config).unwrap();
    for hook in ["pre-commit", "post-checkout", "post-index-change", "reference-transaction"] {
        copy_program(&program, &work.join(".git/hooks").join(hook));
    }
    fs::write(work.join(".gitattributes"), "* filter=evil diff=evil merge=evil text\n").unwrap();
    for fifo in [".git/fifo", ".git/index", "fifo", ".git/info-fifo"] {
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, work.join(fifo), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    }
    symlink("loop-b", work.join("loop-a")).unwrap();
    symlink("loop-a", work.join("loop-b")).unwrap();
    symlink(".", work.join("self")).unwrap();
    symlink("/etc/passwd", work.join("outside")).unwrap();
    fs::File::create(work.join("huge")).unwrap().set_len(4 << 30).unwrap();
    let begun = Instant::now();
    let process =
        world.run_commands(&["printf 'a\\r\\nb\\r\\n' > text; rm outside; echo x > loop-target", "echo y > text"], &[]);
    let diff = world.relive(&["diff", "--json", &process.uuid, "1"]).ok().json();
    let paths: Vec<_> = diff["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(paths, [json!("loop-target"), json!("outside"), json!("text")]);
    assert_eq!(world.info(&process.uuid)["workspace"]["grade"], "partial", "the large file and the pipe are not in it");
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "-y"]).fails(3, &["partial"]);
    world.relive(&["rewind", &process.uuid, "--to-step", "1", "--force"]).ok();
    assert_eq!(fs::read(work.join("text")).unwrap(), b"a\r\nb\r\n", "no filter has seen it");
    world.relive(&["rewind", &process.uuid, "--to-step", "0", "--force"]).ok();
    assert_eq!(fs::read_link(work.join("outside")).unwrap().to_str(), Some("/etc/passwd"));
    let (fork, _) = world.fork_at(&process, 1, &[]);
    assert_eq!(fs::read(world.own(&fork).join("text")).unwrap(), b"a\r\nb\r\n");
    assert!(begun.elapsed() < Duration::from_secs(50), "{:?}", begun.elapsed());
    assert!(!trap.exists(), "something of the repository was run");
    assert_eq!(fs::read_to_string(work.join(".git/config")).unwrap(), config, "it is untouched");
    assert!(!work.join("fifo").is_file() && work.join("huge").metadata().unwrap().len() == 4 << 30);
}
