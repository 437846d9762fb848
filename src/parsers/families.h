// The syntaxes in which models call tools and think aloud: one table each.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

enum class CallShape : uint8_t { kJson, kTags, kPython, kGemma, kHarmony };

// The marks around calls. What they mean depends on the shape; unused ones are empty.
struct CallSyntax {
  CallShape shape = CallShape::kJson;
  std::vector<std::string_view> opens = {}, closes = {};  // marks around a call or a list of calls
  // kJson: {"name": …, "arguments": {…}}, or a list of those.
  // kJson: not empty: the name comes first, then one of these, then arguments. kTags: before the function, after a word.
  std::vector<std::string_view> name_ends = {};
  bool bare = false;         // also at the answer's start without a mark, for tools that exist
  bool name_is_key = false;  // {name: arguments}
  // kTags: opens, function NAME name_end, then key KEY key_end value VALUE value_end …, then function_end.
  std::string_view function = {}, name_end = {}, function_end = {};
  std::string_view key = {}, key_end = {}, value = {}, value_end = {};
  // A key that ends with the first has a text as its value, exactly as written; with the second JSON.
  std::string_view text_key = {}, json_key = {};
  std::string_view word = {};   // in the marks; if it is a token of the vocabulary, the rest of each mark is text
  std::string_view quote = {};  // kGemma: around strings
};

// How calls are written where an answer must have them. Marks in these texts that are tokens of the vocabulary are those
// tokens.
struct CallForm {
  std::string_view sign = {};   // a text by which its templates are known; the last form of a family needs none
  std::string_view begin = {};  // before the first call
  std::string_view before_name = {}, before_arguments = {}, after_arguments = {};
  std::string_view separator = {};  // between calls
  std::string_view end = {};        // after the last
  bool single = false;              // an answer has one call at most
  // kTags: KEY key_end after_key value around_value VALUE around_value value_end after_value.
  std::string_view after_key = {}, around_value = {}, after_value = "\n";
};

// How ids of calls must look for the model's own template to take them back.
enum class CallIds : uint8_t { kOpenAi, kNineCharacters, kFunctionNames };

struct ToolFamily {
  std::string_view name;                      // as --tool-call-parser names it
  std::vector<std::string_view> other_names;  // vLLM's names for models of the same syntax
  std::vector<std::string_view> signs;        // a template with all of these is of the family; empty: only by name
  CallSyntax syntax;
  std::vector<CallForm> forms;
  CallIds ids = CallIds::kOpenAi;
};
std::span<const ToolFamily> tool_families();  // the first whose signs fit is chosen

struct ReasoningFamily {
  std::string_view name;
  std::vector<std::string_view> other_names;
  std::vector<std::string_view> signs;
  std::string_view open = {}, close = {};
  std::string_view label = {};  // after `open`, left out
  // Texts around the answer proper, left out.
  std::string_view answer_open = {}, answer_close = {};
  bool starts_inside = false;  // if named: the answer begins inside a thought, although the prompt does not show it
  bool harmony = false;        // the channels of CallShape::kHarmony; open and close are unused
};
std::span<const ReasoningFamily> reasoning_families();

// Whether a text is an added token of the model's vocabulary.
using IsToken = std::function<bool(std::string_view)>;

struct AnswerFormat {
  const ToolFamily* tools = nullptr;               // null: calls are not parsed
  const CallForm* form = nullptr;                  // one of those of `tools`
  const ReasoningFamily* reasoning = nullptr;      // null: reasoning stays text
  bool starts_inside = false;                      // ReasoningFamily::starts_inside of a family that was named
  std::set<std::string, std::less<>> tokens = {};  // marks that are tokens: text that spells them means nothing
};

// A name of the tables, "auto" (by the template's signs; tools default to the generic "json") or "none". Throws Error
// for another name. `is_token` is asked about the marks of the chosen families.
AnswerFormat choose_format(std::string_view template_source, const IsToken& is_token, std::string_view tool_parser,
                           std::string_view reasoning_parser);
const ToolFamily& generic_tool_family();

// All names, for --help: "auto", "none" and those of the table.
std::vector<std::string> tool_parser_names();
std::vector<std::string> reasoning_parser_names();

}  // namespace quire
