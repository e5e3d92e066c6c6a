//! Questions of an agent to its user.

use crate::json::Json;

/// Joins the texts of the list `questions`, which claude and codex have in common.
pub(super) fn joined_questions(request: Json<'_>) -> String {
    let questions = request.field("questions").map(Json::items).unwrap_or_default();
    let texts: Vec<String> = questions.into_iter().filter_map(|question| question.text_at(&["question"])).collect();
    texts.join("\n")
}
