//! The note about the files of a fork, which are not those of its origin.

use relive_agent::git;
use relive_core::Uuid;
use relive_journal::History;
use relive_journal::record::Git;

use crate::runtime::Runtime;

impl Runtime {
    /// Returns a note about the files of a fork; `None` if nothing is known, or nothing differs.
    pub(crate) async fn compare_files(&self, source: Uuid, fork: &History) -> Option<String> {
        if !self.settings.git_notes {
            return None;
        }
        let step = fork.completed_step;
        let cwd = fork.identity.as_ref()?.spawned.cwd.clone();
        let then = self.on_disk(move |data| data.git_after(source, step)).await.ok()?.ok()??;
        let now = git::look(&self.pools.files, cwd.into()).await;
        difference(step, &then, now.as_ref())
    }
}

fn difference(step: u32, then: &Git, now: Option<&Git>) -> Option<String> {
    if now == Some(then) && then.dirty == Some(false) {
        return None;
    }
    let now = now.map_or_else(|| "there is no repository now".to_owned(), |now| format!("is {} now", name(now)));
    Some(format!("the fork has the conversation, not the files: HEAD was {} at step {step}, {now}", name(then)))
}

fn name(git: &Git) -> String {
    // Only older journals contain it.
    let state = match git.dirty {
        Some(true) => " (dirty)",
        Some(false) => " (clean)",
        None => "",
    };
    format!("{}{state}", &git.head[..git.head.floor_char_boundary(7)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(head: &str, dirty: Option<bool>) -> Git {
        Git { head: head.repeat(10), dirty }
    }

    #[test]
    fn a_note_is_left_out_only_if_the_files_are_surely_the_same() {
        let check = |then: Git, now: Option<Git>, expect: Option<&str>| {
            let said = difference(5, &then, now.as_ref());
            let said = said.as_deref().map(|said| said.strip_prefix("the fork has the conversation, not the files: "));
            assert_eq!(said.map(Option::unwrap), expect);
        };
        check(git("abcd", Some(false)), Some(git("abcd", Some(false))), None);
        check(
            git("abcd", Some(false)),
            Some(git("ef01", Some(true))),
            Some("HEAD was abcdabc (clean) at step 5, is ef01ef0 (dirty) now"),
        );
        check(
            git("abcd", Some(true)),
            Some(git("abcd", Some(true))),
            Some("HEAD was abcdabc (dirty) at step 5, is abcdabc (dirty) now"),
        );
        check(git("abcd", None), None, Some("HEAD was abcdabc at step 5, there is no repository now"));
    }
}
