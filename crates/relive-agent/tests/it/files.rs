//! Reading, listing, searching and changing files.

use std::os::unix::fs::PermissionsExt as _;

use relive_agent::tool::Patience;
use relive_agent::tools;
use serde_json::json;

use crate::support::{World, find};

#[test]
fn every_tool_is_defined_under_its_name() {
    for tool in tools::all() {
        let definition = tool.definition();
        assert_eq!(definition["name"], tool.name());
        assert!(definition["description"].as_str().unwrap().len() > 10);
        assert_eq!(definition["input_schema"]["type"], "object");
        assert_eq!(definition["input_schema"]["additionalProperties"], false);
        let expect = match tool.name() {
            "abandon" | "sleep" | "terminate" | "wait_agent" => Patience::Leave,
            "read" | "list" | "search" => Patience::Read,
            "shell" => Patience::Session,
            _ => Patience::Finish,
        };
        assert_eq!(tool.patience(), expect, "{}", tool.name());
    }
    assert!(tools::find("bash").is_none());
}

#[tokio::test]
async fn arguments_are_refused_by_name() {
    let world = World::new();
    for (tool, args, words) in [
        ("read", json!({}), "read: `path` is missing"),
        ("read", json!({"path": 5}), "`path` must be a string, not 5"),
        ("read", json!({"path": "a", "offset": -1}), "`offset` must be a whole number"),
        ("read", json!({"path": "a", "lines": 3}), "unknown field `lines`; the fields are path, offset, limit"),
        ("list", json!(["."]), "must be an object, not a list"),
        ("search", json!({"pattern": ""}), "`pattern` must not be empty"),
        ("write", json!({"path": "a"}), "`content` is missing"),
        ("edit", json!({"path": "a", "old": "", "new": "x"}), "`old` must not be empty"),
        ("edit", json!({"path": "a", "old": "x", "new": "x"}), "the same"),
        ("edit", json!({"path": "a", "old": "x", "new": "y", "all": "yes"}), "`all` must be true or false"),
        ("sleep", json!({}), "`duration` is missing"),
        ("sleep", json!({"duration": "soon"}), "`duration` must be a duration like"),
        ("sleep", json!({"duration": -3}), "`duration` must be"),
        ("spawn_agent", json!({"intent": "  "}), "`intent` must say"),
        ("wait_agent", json!({"uuid": "5"}), "`uuid` must be a UUID, not \"5\""),
        ("done", json!({"summary": {}}), "`summary` must be a string, not an object"),
    ] {
        world.refused(tool, args, words).await;
    }
}

#[tokio::test]
async fn read_shows_the_text_and_says_where_it_is_cut() {
    let world = World::new();
    world.put("a.txt", "one\ntwo\nthree\n");
    let read = async |args| world.works("read", args).await;
    assert_eq!(read(json!({"path": "a.txt"})).await, "one\ntwo\nthree\n");
    assert_eq!(read(json!({"path": world.cwd.join("a.txt")})).await, "one\ntwo\nthree\n");
    assert_eq!(read(json!({"path": "./a.txt", "offset": 3, "limit": null})).await, "three\n");
    assert_eq!(
        read(json!({"path": "a.txt", "limit": 2})).await,
        "one\ntwo\n\n[cut after line 2; continue with offset 3]"
    );
    assert_eq!(read(json!({"path": "a.txt", "offset": 9})).await, "[the file has 3 lines; line 9 is past its end]");

    world.put("long", "x".repeat(99).replace("xxx", "yy\n").repeat(4000));
    let first = read(json!({"path": "long"})).await;
    assert!(first.len() <= 256 * 1024 + 100 && first.contains("[cut after line "), "{}", first.len());
    world.put("wide", "é".repeat(200_000));
    let wide = read(json!({"path": "wide"})).await;
    assert!(wide.starts_with("éé") && wide.ends_with("[cut: line 1 is longer than 262144 bytes]"));
    world.put("empty", "");
    assert_eq!(read(json!({"path": "empty"})).await, "[the file is empty]");

    world.put("binary", b"\x7fELF\0\0");
    world.refused("read", json!({"path": "binary"}), "it is binary").await;
    world.put("latin1", b"ok\nr\xe9sum\xe9\n");
    world.refused("read", json!({"path": "latin1"}), "line 2 is not valid UTF-8").await;
    world.refused("read", json!({"path": "."}), "is a directory, not a file").await;
    world.refused("read", json!({"path": "nothing"}), "does not exist").await;
    world.refused("read", json!({"path": "a.txt/b"}), "goes through one").await;
}

#[tokio::test]
async fn a_pipe_or_a_socket_is_refused_by_name_at_once() {
    let world = World::new();
    world.pipe("pipe");
    let _socket = std::os::unix::net::UnixListener::bind(world.outside.join("s")).unwrap();
    std::fs::hard_link(world.outside.join("s"), world.cwd.join("socket")).unwrap();
    for (tool, args) in [
        ("read", json!({"path": "pipe"})),
        ("write", json!({"path": "pipe", "content": ""})),
        ("edit", json!({"path": "pipe", "old": "a", "new": "b"})),
        ("search", json!({"path": "pipe", "pattern": "a"})),
    ] {
        world.refused(tool, args, "`pipe` is a pipe, not a file").await;
    }
    world.refused("list", json!({"path": "pipe"}), "not a directory").await;
    world.refused("read", json!({"path": "socket"}), "socket").await;
    assert_eq!(world.works("search", json!({"pattern": "x"})).await, "[nothing found]\n");
}

#[tokio::test]
async fn list_is_sorted_and_marks_directories_and_links() {
    let world = World::new();
    assert_eq!(world.works("list", json!({})).await, "[the directory is empty]");
    world.put("b", "");
    world.put("a/inner", "");
    world.link("b", "c");
    assert_eq!(world.works("list", json!({})).await, "a/\nb\nc@\n");
    assert_eq!(world.works("list", json!({"path": "a"})).await, "inner\n");
    world.refused("list", json!({"path": "b"}), "not a directory").await;
    for number in 0..1001 {
        world.put(&format!("many/{number:04}"), "");
    }
    let many = world.works("list", json!({"path": "many"})).await;
    assert!(many.ends_with("0999\n[cut: the first 1000 of 1001 names]\n"));
}

#[tokio::test]
async fn search_names_each_line_once() {
    let world = World::new();
    world.put("src/a.rs", "fn main() {}\n// fn fn\nlet x;\nfn last");
    world.put("b", "no\n");
    world.put(".git/config", "fn");
    world.put("binary", b"fn\0");
    world.put("large", "fn ".repeat(400_000));
    world.link("../secret", "out");
    let found = world.works("search", json!({"pattern": "fn"})).await;
    assert_eq!(found, "src/a.rs:1:fn main() {}\nsrc/a.rs:2:// fn fn\nsrc/a.rs:4:fn last\n");
    assert_eq!(world.works("search", json!({"pattern": "secret"})).await, "[nothing found]\n");
    assert_eq!(world.works("search", json!({"pattern": "let", "path": "src/a.rs"})).await, "src/a.rs:3:let x;\n");
    world.refused("search", json!({"pattern": "fn", "path": "large"}), "use read").await;
    world.put("many", "fn\n".repeat(300));
    let many = world.works("search", json!({"pattern": "fn", "path": "many"})).await;
    assert_eq!((many.lines().count(), many.contains("[cut: more than 200 lines")), (201, true));
}

#[tokio::test]
async fn write_creates_directories_keeps_the_mode_and_leaves_no_temporary_files() {
    let world = World::new();
    assert_eq!(world.works("write", json!({"path": "a/b/c.txt", "content": "1"})).await, "wrote 1 bytes to a/b/c.txt");
    assert_eq!(world.get("a/b/c.txt"), "1");
    let mode = |path: &str| world.cwd.join(path).metadata().unwrap().permissions().mode() & 0o7777;
    std::fs::set_permissions(world.cwd.join("a/b/c.txt"), std::fs::Permissions::from_mode(0o751)).unwrap();
    world.works("write", json!({"path": "a/b/c.txt", "content": "2"})).await;
    assert_eq!((world.get("a/b/c.txt").as_str(), mode("a/b/c.txt")), ("2", 0o751));

    world.link("a/b/c.txt", "link");
    world.link("new.txt", "dangling");
    world.works("write", json!({"path": "link", "content": "3"})).await;
    world.works("write", json!({"path": "dangling", "content": "4"})).await;
    assert!(world.cwd.join("link").is_symlink());
    assert_eq!((world.get("a/b/c.txt").as_str(), world.get("new.txt").as_str()), ("3", "4"));
    assert_eq!(world.names(), ["a", "dangling", "link", "new.txt"]);

    world.refused("write", json!({"path": "a", "content": ""}), "is a directory, not a file").await;
    world.refused("write", json!({"path": "new.txt/x", "content": ""}), "goes through one").await;
    world.link("link1", "link2");
    world.link("link2", "link1");
    world.refused("write", json!({"path": "link1", "content": ""}), "too many symbolic links").await;
}

#[tokio::test]
async fn edit_requires_the_exact_text_once_or_all() {
    let world = World::new();
    world.put("a", "x = 1\ny = 1\n");
    world.refused("edit", json!({"path": "a", "old": "z", "new": ""}), "`old` is not in `a`").await;
    world.refused("edit", json!({"path": "a", "old": "1", "new": "2"}), "2 times").await;
    assert_eq!(world.works("edit", json!({"path": "a", "old": "x = 1", "new": "x = 2"})).await, "edited a");
    assert_eq!(world.get("a"), "x = 2\ny = 1\n");
    world.works("edit", json!({"path": "a", "old": " = ", "new": "=", "all": true})).await;
    assert_eq!(world.get("a"), "x=2\ny=1\n");
    world.refused("edit", json!({"path": "b", "old": "x", "new": "y"}), "does not exist").await;
    world.put("latin1", b"\xe9");
    world.refused("edit", json!({"path": "latin1", "old": "x", "new": "y"}), "not valid UTF-8").await;
}

#[tokio::test]
async fn done_marks_the_work_as_done() {
    let world = World::new();
    let result = find("done").run(
        world.context.clone(),
        String::new(),
        world.prepare("done", json!({})).await.unwrap(),
        "key:1".into(),
    );
    let result = result.await;
    assert!(result.ok && result.done && result.text == "done");
    assert_eq!(world.works("done", json!({"summary": "all of it"})).await, "all of it");
}

#[tokio::test]
async fn no_file_is_written_into_a_git_directory() {
    let world = World::new();
    world.put(".git/hooks/sample", "");
    world.put("sub/file", "");
    world.link("../.git", "sub/link");
    for path in
        [".git/config", "./.git/hooks/pre-commit", "sub/link/config", "sub/.git", "new/.git/config", ".GIT/config"]
    {
        world.refused("write", json!({"path": path, "content": "[core]"}), "is inside a .git directory").await;
    }
    assert!(!world.cwd.join(".git/config").exists() && !world.cwd.join("new").exists());
    world.put(".git/config", "[core]\n");
    let edit = json!({"path": ".git/config", "old": "core", "new": "alias"});
    world.refused("edit", edit, "is inside a .git directory").await;
}
