#include "text/hidden_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text/text_search.h"
#include "jinja/builtins/time.h"
#include "jinja/value/unicode.h"
#include "text/chat_prompt.h"
#include "text/marks.h"

namespace quire {
namespace {

using nlohmann::ordered_json;

// A mark is one character and a number in base 16, whose digits are characters that occur nowhere else, either.
constexpr size_t kBase = 16, kDigits = 6;

struct MarkedPart {
  HiddenPart where;
  size_t first = 0, count = 0;  // its marks
  bool any = false;             // one of them is enough
};

// The first text in the arguments of a call: the one that gets a mark. nullptr: there is none.
template <class J>
J* first_text(J& json) {
  if (json.is_string()) {
    return jinja::strip(json.template get_ref<const std::string&>(), nullptr, true, true).empty() ? nullptr : &json;
  }
  if (!json.is_structured()) return nullptr;
  for (J& below : json) {
    if (J* found = first_text(below)) return found;
  }
  return nullptr;
}

class MarkAlphabet {
 public:
  explicit MarkAlphabet(std::span<const std::string_view> texts) : characters_(unused_characters(texts, kBase + 1)) {
    for (const std::string& character : characters_) {
      size_t at = 0;
      escaped_.push_back(fmt::format("\\u{:04x}", static_cast<uint32_t>(utf8_next(character, at))));
    }
  }

  std::string mark(size_t number) const {
    std::string made = characters_[kBase];
    for (size_t i = 0; i < kDigits; ++i, number /= kBase) made += characters_[number % kBase];
    return made;
  }

  // Takes the marks out of `text`; found[n]: mark n was there.
  std::string without_marks(std::string_view text, std::vector<bool>& found) const {
    std::string clean;
    clean.reserve(text.size());
    for (size_t at = 0; at < text.size();) {
      if (const auto number = take_mark(text, at)) {
        if (*number < found.size()) found[*number] = true;
      } else {
        clean += text[at++];
      }
    }
    return clean;
  }

 private:
  std::optional<size_t> take_mark(std::string_view text, size_t& at) const {
    const bool may_begin = (static_cast<unsigned char>(text[at]) & 0xFE) == 0xEE || text[at] == '\\';
    size_t end = at, number = 0, scale = 1;
    if (!may_begin || !take(text, end, kBase)) return std::nullopt;
    for (size_t i = 0; i < kDigits; ++i, scale *= kBase) {
      size_t digit = 0;
      while (digit < kBase && !take(text, end, digit)) ++digit;
      if (digit == kBase) return std::nullopt;
      number += digit * scale;
    }
    at = end;
    return number;
  }

  bool take(std::string_view text, size_t& at, size_t character) const {
    const std::string_view rest = text.substr(std::min(at, text.size()));
    for (const auto* spellings : {&characters_, &escaped_}) {
      const std::string& spelling = (*spellings)[character];
      if (!rest.starts_with(spelling)) continue;
      at += spelling.size();
      return true;
    }
    return false;
  }

  std::vector<std::string> characters_, escaped_;  // the digits, then the first of each mark
};

// Puts marks into a chat and remembers what they stand for.
class ChatMarker {
 public:
  ChatMarker(const ChatInput& chat, const MarkAlphabet& alphabet) : alphabet_(alphabet), marked_(chat) {
    for (size_t i = 0; i < marked_.messages.size(); ++i) mark_message(marked_.messages[i], i);
    if (marked_.documents.is_array()) {
      for (size_t i = 0; i < marked_.documents.size(); ++i) {
        begin({HiddenPart::kDocument, i}, true);
        mark_strings(marked_.documents[i]);
      }
    }
    if (!marked_.tools.is_array()) return;
    for (size_t i = 0; i < marked_.tools.size(); ++i) {
      begin({HiddenPart::kTool, i});
      mark_name(marked_.tools[i]);
    }
  }

  const std::vector<MarkedPart>& parts() const { return parts_; }
  size_t marks() const { return marks_; }
  ChatInput take() { return std::move(marked_); }

 private:
  void begin(HiddenPart where, bool any = false) {
    parts_.push_back({.where = where, .first = marks_, .count = 0, .any = any});
  }

  std::string next_mark() {
    ++parts_.back().count;
    return alphabet_.mark(marks_++);
  }

  // Around the text without white space at its ends, which templates trim.
  void mark_text(ordered_json& text, bool start) {
    auto& bytes = text.get_ref<std::string&>();
    const std::string_view inner = jinja::strip(bytes, nullptr, true, true);
    if (inner.empty()) return;
    const auto from = static_cast<size_t>(inner.data() - bytes.data()), to = from + inner.size();
    std::string made = bytes.substr(0, from);
    if (start) made += next_mark();
    made.append(bytes, from, inner.size());
    made += next_mark();
    made.append(bytes, to, std::string::npos);
    bytes = std::move(made);
  }

  // An answer's text may begin with thoughts, so only its end is marked.
  void mark_message(ordered_json& message, size_t index) {
    if (!message.is_object()) return;
    const bool answer = message.value("role", ordered_json()) == "assistant";
    if (const auto content = message.find("content"); content != message.end()) {
      begin({HiddenPart::kContent, index});
      if (content->is_string()) mark_text(*content, !answer);
      if (content->is_array()) {
        for (ordered_json& part : *content) {
          if (!part.is_object() || !part.contains("text") || !part["text"].is_string()) continue;
          mark_text(part["text"], !answer);
        }
      }
    }
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) return;
    for (size_t i = 0; i < calls->size(); ++i) {
      begin({HiddenPart::kCall, index, i});
      mark_name((*calls)[i]);
    }
  }

  // The name of a tool or a call, and a string of the call's arguments.
  void mark_name(ordered_json& object) {
    if (!object.is_object() || !object.contains("function") || !object["function"].is_object()) return;
    ordered_json& function = object["function"];
    if (function.contains("name") && function["name"].is_string()) mark_text(function["name"], false);
    if (!function.contains("arguments")) return;
    if (ordered_json* text = first_text(function["arguments"])) mark_text(*text, false);
  }

  void mark_strings(ordered_json& json) {
    if (json.is_string()) return mark_text(json, false);
    if (!json.is_structured()) return;
    for (ordered_json& below : json) mark_strings(below);
  }

  const MarkAlphabet& alphabet_;
  ChatInput marked_;
  std::vector<MarkedPart> parts_;
  size_t marks_ = 0;
};

bool is_marked(const MarkedPart& part, const std::vector<bool>& found) {
  const auto begin = found.begin() + static_cast<std::ptrdiff_t>(part.first);
  const auto end = begin + static_cast<std::ptrdiff_t>(part.count);
  if (part.count == 0) return true;
  return part.any ? std::find(begin, end, true) != end : std::find(begin, end, false) == end;
}

std::string without_spaces(std::string_view text) {
  std::string dense;
  dense.reserve(text.size());
  for (const char c : text) {
    if (c != ' ' && c != '\n' && c != '\t' && c != '\r') dense += c;
  }
  return dense;
}

// The texts of a part that have marks.
std::vector<std::string_view> texts_of(const ChatInput& chat, const HiddenPart& part) {
  std::vector<std::string_view> texts;
  const auto add_function = [&](const ordered_json& function) {
    if (function.contains("name")) collect_strings(function["name"], texts);
    if (!function.contains("arguments")) return;
    if (const ordered_json* text = first_text(function["arguments"])) collect_strings(*text, texts);
  };
  switch (part.kind) {
    case HiddenPart::kContent: {
      const ordered_json& content = chat.messages[part.index]["content"];
      if (content.is_string()) collect_strings(content, texts);
      if (!content.is_array()) break;
      for (const ordered_json& piece : content) {
        if (piece.is_object() && piece.contains("text")) collect_strings(piece["text"], texts);
      }
      break;
    }
    case HiddenPart::kCall:
      add_function(chat.messages[part.index]["tool_calls"][part.call]["function"]);
      break;
    case HiddenPart::kDocument:
      collect_strings(chat.documents[part.index], texts);
      break;
    case HiddenPart::kTool:
      collect_strings(chat.tools[part.index]["function"]["name"], texts);
      break;
  }
  return texts;
}

// A template may look into texts, and treat marked ones differently. Then the texts themselves count, as they are or
// escaped as in JSON.
class TextSearch {
 public:
  explicit TextSearch(std::string_view prompt)
      : prompt_(without_spaces(prompt)), budget_(kPasses * (prompt_.size() + 4096)) {}

  bool has(const ChatInput& chat, const MarkedPart& part) {
    const std::vector<std::string_view> texts = texts_of(chat, part.where);
    const auto shown = [&](std::string_view text) {
      const std::string quoted = ordered_json(text).dump(-1, ' ', false, ordered_json::error_handler_t::replace);
      return has(text) || has(std::string_view(quoted).substr(1, quoted.size() - 2));
    };
    return part.any ? std::ranges::any_of(texts, shown) : std::ranges::all_of(texts, shown);
  }

 private:
  static constexpr size_t kPasses = 64;  // over the prompt, at most; then texts count as found

  // Most texts come in the order of the chat, so the search goes on where the last one ended.
  bool has(std::string_view text) {
    const std::string dense = without_spaces(text);
    for (const size_t from : {last_, size_t{0}}) {
      const size_t found = find_text(prompt_, dense, from);
      const size_t end = std::min(found, prompt_.size());
      budget_ -= std::min(budget_, end - std::min(from, end));
      if (found != std::string::npos) last_ = found + dense.size();
      if (found != std::string::npos || budget_ == 0) return true;
    }
    return false;
  }

  std::string prompt_;
  size_t budget_, last_ = 0;
};

std::optional<std::string> try_render(const RenderChat& render, ChatInput chat) {
  try {
    return render(std::move(chat));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::optional<HiddenPart> find_hidden_part(const ChatInput& given, const RenderChat& render) {
  if (!given.messages.is_array()) return std::nullopt;  // an Error of render
  ChatInput chat = given;
  if (!chat.now) chat.now = jinja::local_now();  // the prompts may show it
  std::vector<std::string_view> strings;
  for (const ordered_json* json : {&chat.messages, &chat.tools, &chat.documents, &chat.kwargs})
    collect_strings(*json, strings);
  const MarkAlphabet alphabet(strings);
  ChatMarker marker(chat, alphabet);
  std::vector<bool> found(marker.marks());
  const auto marked = try_render(render, marker.take());
  const std::string clean = marked ? alphabet.without_marks(*marked, found) : "";
  const auto missing = [&](const MarkedPart& part) { return !is_marked(part, found); };
  const std::vector<MarkedPart>& parts = marker.parts();
  if (marked && std::ranges::none_of(parts, missing)) return std::nullopt;

  const auto prompt = try_render(render, chat);
  if (!prompt) return std::nullopt;
  const bool same = marked && clean == *prompt;
  TextSearch search(same ? "" : *prompt);
  for (const MarkedPart& part : parts) {
    if (missing(part) && (same || !search.has(chat, part))) return part.where;
  }
  return std::nullopt;
}

std::string path_of(const HiddenPart& part, std::string_view messages) {
  switch (part.kind) {
    case HiddenPart::kContent:
      return fmt::format("{}[{}].content", messages, part.index);
    case HiddenPart::kCall:
      return fmt::format("{}[{}].tool_calls[{}]", messages, part.index, part.call);
    case HiddenPart::kDocument:
      return fmt::format("documents[{}]", part.index);
    case HiddenPart::kTool:
      return fmt::format("tools[{}]", part.index);
  }
  return {};
}

void require_shown(const ChatInput& chat, const RenderChat& render) {
  const auto hidden = find_hidden_part(chat, render);
  if (!hidden) return;
  const bool in_message = hidden->in_message();
  const std::string role = in_message ? chat.messages[hidden->index].value("role", "") : "";
  throw unsupported("{}: the model's chat template leaves this {} out of the prompt", path_of(*hidden),
                    in_message ? fmt::format("{} message", ordered_json(role).dump()) : "part");
}

}  // namespace quire
