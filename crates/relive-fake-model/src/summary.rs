//! Summarized conversations. A summary says how many answers it replaces, so that the conversation alone still
//! determines the requested turn.

/// The beginning of a request for a summary, as the server's clients write it.
const ASKED_FOR: &str = "You keep the memory of an agent";
/// The beginning of an answer in the text to summarize.
const ANSWER: &str = "[agent]";
const STANDS_FOR: &str = " answers are summed up here.";

pub(crate) fn is_asked_for(request: &str) -> bool {
    request.contains(ASKED_FOR)
}

/// Returns how many answers the summary in a request replaces.
pub(crate) fn answers_before(request: &str) -> usize {
    let before = request.split_once(STANDS_FOR).map_or("", |(before, _)| before);
    let number = before.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    number.parse().unwrap_or(0)
}

/// Returns the number of answers that a request wants summarized, and the summary.
pub(crate) fn sum_up(request: &str) -> (usize, String) {
    let answers = answers_before(request) + request.matches(ANSWER).count();
    (answers, format!("{answers}{STANDS_FOR}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_of_a_summary_counts_all_answers() {
        let (answers, summary) = sum_up("[user] [agent] [result] [agent]");
        assert_eq!((answers, answers_before(&format!("x:\\n\\n{summary}"))), (2, 2));
        assert_eq!(sum_up(&format!("[earlier] {summary} [agent]")).0, 3);
        assert_eq!(answers_before("nothing"), 0);
    }
}
