//! Recognizes the message of a used-up quota.
//!
//! The CLIs change their wording often, so a message is searched for the parts that all of them have: a noun (`limit`,
//! `quota`), a verb for reaching it, and a word that distinguishes a quota of the account from a limit of the program.
//! The HTTP status 429 is not enough: providers also answer with it when requests come too fast, and gemini then adds a
//! remark about its quotas.

/// Messages without such a noun, or with a verb of their own, in lower case.
const PHRASES: [&str; 19] = [
    "usage_limit_reached",
    "insufficient_quota",
    "quota_exceeded",
    "exhausted your capacity",
    "credit balance is too low",
    "insufficient balance",
    "insufficient credits",
    "out of extra usage",
    "out of codex messages",
    "out of premium requests",
    "free usage exceeded",
    "free tier of the model has been exhausted",
    "billing hard limit",
    "resource has been exhausted (e.g. check quota)",
    "free-models-per-day",
    "used up your premium requests",
    "no credits left",
    "no quota left",
    "you have no quota",
];

/// Google's status of every 429, and the details that it adds if a quota is the reason.
const GOOGLE_STATUS: &str = "resource_exhausted";
const GOOGLE_DETAILS: [&str; 5] = ["quotafailure", "quotametric", "quota_metric", "quota_limit", "retrydelay"];

const NOUNS: [&str; 7] = ["limit", "limits", "cap", "quota", "quotas", "credits", "allowance"];

/// The nouns that are used only for accounts.
const ACCOUNT_NOUNS: [&str; 4] = ["quota", "quotas", "credits", "allowance"];

const VERBS: [&str; 6] = ["hit", "reached", "exceeded", "exhausted", "depleted", "spent"];

/// Two words that are a verb only together.
const VERBS_OF_TWO: [[&str; 2]; 3] = [["used", "up"], ["used", "all"], ["out", "of"]];

/// The words between a noun and the verb behind it.
const LINKS: [&str; 7] = ["has", "have", "been", "was", "is", "are", "already"];

/// Words that mark a limit as one of the account.
const ACCOUNT_WORDS: [&str; 20] = [
    "usage",
    "daily",
    "weekly",
    "monthly",
    "hourly",
    "day",
    "week",
    "month",
    "plan",
    "spend",
    "spending",
    "credit",
    "billing",
    "account",
    "subscription",
    "premium",
    "opus",
    "sonnet",
    "haiku",
    "fable",
];

/// Words that mark a limit as one of the account, unless a doubtful word says that the limit is about the size of such
/// a thing.
const ACCOUNT_SCOPES: [&str; 2] = ["session", "workspace"];

/// Words that always mark a limit as one of the program or of the machine.
const PROGRAM_WORDS: [&str; 19] = [
    "context",
    "memory",
    "output",
    "disk",
    "retry",
    "retries",
    "recursion",
    "tool",
    "turn",
    "turns",
    "max_turns",
    "max_tokens",
    "file",
    "upload",
    "concurrency",
    "concurrent",
    "creation",
    "step",
    "window",
];

/// Words that mark a limit as one of the program unless an account word is present.
const DOUBTFUL_WORDS: [&str; 11] =
    ["rate", "time", "token", "tokens", "size", "length", "depth", "request", "requests", "steps", "connections"];

/// Words before the verb that mean that the limit is not reached yet.
const NOT_YET: [&str; 9] = ["not", "never", "approaching", "nearing", "near", "close", "almost", "before", "until"];

/// How many words may lie between the noun and its verb.
const BEFORE_NOUN: usize = 6;
const AFTER_NOUN: usize = 4;
/// How many words before the noun are about it, if the verb follows.
const NOUN_PHRASE: usize = 4;

/// Returns whether a message of the CLI, not of the agent, reports a used-up quota.
pub(super) fn is_about_quota(message: &str) -> bool {
    let text = message.to_ascii_lowercase().replace('\u{2019}', "'");
    let by_google = text.contains(GOOGLE_STATUS) && GOOGLE_DETAILS.iter().any(|detail| text.contains(detail));
    by_google || PHRASES.iter().any(|phrase| text.contains(phrase)) || sentences(&text).any(is_quota_sentence)
}

/// Splits a text into sentences. A full stop inside a number or a name does not end one.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split(['\n', '·', '∙', '•', '|', '!', ';']).flat_map(|part| part.split(". "))
}

fn is_quota_sentence(sentence: &str) -> bool {
    let is_separator = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '\''));
    let words: Vec<&str> = sentence.split(is_separator).filter(|word| !word.is_empty()).collect();
    let mut nouns = words.iter().enumerate().filter(|(_, word)| NOUNS.contains(word));
    nouns.any(|(noun, _)| is_reached_before(&words, noun) || is_reached_after(&words, noun))
}

/// `you've hit your weekly limit`: the verb, then the noun.
fn is_reached_before(words: &[&str], noun: usize) -> bool {
    let start = noun.saturating_sub(BEFORE_NOUN);
    let Some(verb) = (start..noun).rev().find(|index| is_verb(words, *index)) else { return false };
    !is_not_yet(words, verb) && !is_of_program(&words[noun + 1..]) && is_of_account(&words[verb + 1..noun], words[noun])
}

/// `limit of 50 turns`: the words behind a noun.
fn is_of_program(after: &[&str]) -> bool {
    let is_program_word = |word: &&str| PROGRAM_WORDS.contains(word) || DOUBTFUL_WORDS.contains(word);
    after.first() == Some(&"of") && after.iter().take(AFTER_NOUN).any(is_program_word)
}

/// `weekly limit reached`, `your quota has been exceeded`: the noun, then the verb.
fn is_reached_after(words: &[&str], noun: usize) -> bool {
    let end = words.len().min(noun + 1 + AFTER_NOUN);
    let Some(verb) = (noun + 1..end).find(|index| is_verb(words, *index)) else { return false };
    let phrase = &words[noun.saturating_sub(NOUN_PHRASE)..noun];
    let is_link = |word: &&str| LINKS.contains(word);
    words[noun + 1..verb].iter().all(is_link) && !is_not_yet(words, noun) && is_of_account(phrase, words[noun])
}

fn is_verb(words: &[&str], index: usize) -> bool {
    VERBS.contains(&words[index]) || VERBS_OF_TWO.iter().any(|verb| words[index..].starts_with(verb))
}

fn is_not_yet(words: &[&str], verb: usize) -> bool {
    words[verb.saturating_sub(NOUN_PHRASE)..verb].iter().any(|word| NOT_YET.contains(word) || word.ends_with("n't"))
}

/// Returns whether a limit is the account's, by the words between it and its verb, or before it.
fn is_of_account(phrase: &[&str], noun: &str) -> bool {
    let has = |list: &[&str]| phrase.iter().any(|word| list.contains(word));
    if has(&PROGRAM_WORDS) {
        return false;
    }
    let names_account = has(&ACCOUNT_WORDS) || phrase.iter().any(|word| word.ends_with("-hour"));
    let may_be_account = has(&ACCOUNT_SCOPES) || has(&["your"]) || ACCOUNT_NOUNS.contains(&noun);
    names_account || (!has(&DOUBTFUL_WORDS) && may_be_account)
}
