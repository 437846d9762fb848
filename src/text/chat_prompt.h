// The tokens of a chat's prompt.
#pragma once

#include <string_view>
#include <vector>

#include "quire/types.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace quire {

// Renders the chat and encodes it. Special tokens come from the template: a message, tool or document that spells one
// ("<|im_end|>") holds plain text, unless input.parse_special is set. Roles are part of the template's own text
// ("<|" + role + "|>"), so callers must not take them from strangers unchecked. Throws as ChatTemplate::render and
// Tokenizer::encode.
TokenIds encode_chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatInput& input);

// Appends views of all strings below `json`, including keys.
void collect_strings(const nlohmann::ordered_json& json, std::vector<std::string_view>& strings);

}  // namespace quire
