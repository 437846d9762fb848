// Tools and calls in a chat's prompt, where the template has a place for them and where it has none.
#pragma once

#include <string>

#include "parsers/families.h"
#include "text/chat_template.h"

namespace quire {

enum class ToolPlace : uint8_t {
  kVariable,       // the template takes the variable `tools`
  kSystemMessage,  // … the member `tools` of a system message, a string (Phi-4)
  kSystemText,     // none: the generic description, in the system message
  kUserText,       // likewise, and no system messages: in the first message
};

// How a template shows tools, and the calls and results of the history.
struct ToolForm {
  ToolPlace place = ToolPlace::kSystemText;
  bool shows_calls = true;           // only with kVariable; false: they become text
  bool shows_results = true;         // likewise
  bool shows_names = true;           // names of calls; false: it shows ids in their place, which must be the names
  bool shows_text_of_calls = true;   // also the text of a message with calls; false: it becomes a message of its own
  bool shows_all_calls = true;       // all calls of a message; false: each becomes a message, followed by its result
  bool takes_text_arguments = true;  // arguments may be a string, for those that are not JSON
};

// Renders chats with a tool of a rare name and looks for it; likewise calls and results.
ToolForm find_tool_form(const RenderChat& render);

// Arguments in the history that the template cannot take as they were written become {kInvalidArguments: text}, as in
// answers of the messages API.
inline constexpr const char* kInvalidArguments = "INVALID_JSON";

// Puts `tools` (as in OpenAI's chats, or null) where the template takes them, and brings the messages into the form
// that it takes: calls and results in the history as text if it has no place for them, ids as Mistral's templates want
// them, reasoning under harmony's name. Arguments of calls are objects, or strings if they are not JSON.
void place_tools(ChatInput& chat, nlohmann::ordered_json tools, const ToolForm& form, const AnswerFormat& format);

}  // namespace quire
