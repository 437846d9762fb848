#include "text/chat_prompt.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text/utf8.h"
#include "base/working_memory.h"
#include "text/marks.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

class Marker {
 public:
  Marker(const Tokenizer& tokenizer, std::string mark) : tokenizer_(tokenizer), mark_(std::move(mark)) {}

  ordered_json marked(const ordered_json& json) const {
    check_work();
    if (json.is_string()) return marked(json.get_ref<const std::string&>());
    ordered_json result = json;
    if (json.is_array()) {
      for (ordered_json& element : result) element = marked(element);
    } else if (json.is_object()) {
      result = ordered_json::object();
      for (const auto& [key, value] : json.get_ref<const ordered_json::object_t&>())
        result[marked(key)] = marked(value);
    }
    return result;
  }

 private:
  std::string marked(const std::string& text) const {
    return insert_marks(text, tokenizer_.special_starts(text), mark_);
  }

  const Tokenizer& tokenizer_;
  std::string mark_;
};

TokenIds encode_chat(const Tokenizer& tokenizer, std::string_view prompt, std::span<const size_t> plain) {
  return tokenizer.encode(prompt, {.add_special = false, .parse_special = true, .plain = plain});
}

}  // namespace

void collect_strings(const ordered_json& json, std::vector<std::string_view>& strings) {
  if (json.is_string()) strings.push_back(json.get_ref<const std::string&>());
  if (json.is_array()) {
    for (const ordered_json& element : json) collect_strings(element, strings);
  }
  if (json.is_object()) {
    for (const auto& [key, value] : json.get_ref<const ordered_json::object_t&>()) {
      strings.push_back(key);
      collect_strings(value, strings);
    }
  }
}

TokenIds encode_chat_prompt(const ChatTemplate& chat, const Tokenizer& tokenizer, const ChatInput& input) {
  std::vector<std::string_view> strings;
  for (const ordered_json* json : {&input.messages, &input.tools, &input.documents}) collect_strings(*json, strings);
  const auto spells_special = [&](std::string_view text) { return !tokenizer.special_starts(text).empty(); };
  if (input.parse_special || std::ranges::none_of(strings, spells_special)) {
    return encode_chat(tokenizer, chat.render(input), {});
  }

  // Put a mark before each such spelling, find the marks again in the prompt, and keep special tokens off those places.
  for (const ordered_json* json : {&input.kwargs, &input.special_tokens}) collect_strings(*json, strings);
  strings.push_back(chat.source());
  const std::string mark = unused_character(strings);
  const Marker marker(tokenizer, mark);
  ChatInput marked = input;
  marked.messages = marker.marked(input.messages);
  for (size_t i = 0; input.messages.is_array() && i < input.messages.size(); ++i) {
    if (input.messages[i].contains("role")) marked.messages[i]["role"] = input.messages[i]["role"];
  }
  marked.tools = marker.marked(input.tools);
  marked.documents = marker.marked(input.documents);
  std::string prompt = chat.render(marked);
  if (!is_utf8(prompt)) prompt = lossy_utf8(prompt);
  const std::vector<size_t> plain = remove_marks(prompt, mark);
  return encode_chat(tokenizer, prompt, plain);
}

}  // namespace quire
