// Content that is made for a provider's own tools, as text: documents, and what those tools found.
#pragma once

#include <optional>
#include <string>

#include "json/field.h"

namespace quire {

// The text of a part of a message or of a tool's result: Anthropic's document, search_result and tool_reference. None:
// the part is of another type. Throws JsonError for documents that are not text.
std::optional<std::string> document_text(const JsonField& part);

// A tool's result: a text, parts, or an object whose members are shown by name, such as {"type": "web_search_result",
// "title": …, "url": …}. Leaves out what only the provider can read (encrypted_content), and refuses what is not text.
std::string result_text(const JsonField& result);

}  // namespace quire
