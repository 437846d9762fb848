#include "json/parse.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/text/quote.h"
#include "base/text/utf8.h"
#include "base/working_memory.h"

namespace quire {
namespace {

// nlohmann's words for what it was reading, and ours for what it should have found.
constexpr std::pair<std::string_view, std::string_view> kExpected[] = {
    {"while parsing object key", "expected a key in double quotes or '}'"},
    {"while parsing object separator", "expected ':'"},
    {"while parsing object ", "expected ',' or '}'"},
    {"while parsing array ", "expected ',' or ']'"},
    {"while parsing value", "expected a value"},
};

// How many of the bytes read belong to what `what` complains about. `token` may begin before it.
size_t offending_bytes(std::string_view what, const std::string& token) {
  if (what.find("unexpected string") != what.npos || what.find("unexpected number") != what.npos ||
      what.find("number overflow") != what.npos) {
    return token.size();
  }
  for (const std::string_view literal : {"true", "false", "null"}) {
    if (what.find(fmt::format("unexpected {} literal", literal)) != what.npos) return literal.size();
  }
  return 1;
}

// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error while parsing value - invalid
// literal; last read: 'x'" in our words, without the place.
std::string in_words(std::string_view what) {
  const size_t detail = what.find(" - ");
  if (detail == what.npos) return "number out of range";
  const std::string_view context = what.substr(0, detail + 1), rest = what.substr(detail + 3);
  if (rest.starts_with("invalid literal")) return "expected a value";
  if (rest.starts_with("invalid ")) return std::string(rest.substr(0, rest.find("; last read")));
  if (rest.find("; expected end of input") != rest.npos) return "unexpected text after the end of the document";
  for (const auto& [reading, expected] : kExpected) {
    if (context.find(reading) != context.npos) return std::string(expected);
  }
  return std::string(rest.substr(0, 200));
}

// The code unit of the escape \uXXXX at `at`; nothing: there is none.
std::optional<uint32_t> escaped_unit(std::string_view text, size_t at) {
  constexpr size_t kEscape = 6;
  if (at + kEscape > text.size() || text[at] != '\\' || text[at + 1] != 'u') return std::nullopt;
  uint32_t unit = 0;
  const char *const first = text.data() + at + 2, *const last = text.data() + at + kEscape;
  return std::from_chars(first, last, unit, 16).ptr == last ? std::optional(unit) : std::nullopt;
}

// The same text, as long as before, with U+FFFD in place of each surrogate that has no partner. Empty: it has none.
std::string without_lone_surrogates(std::string_view text) {
  constexpr size_t kEscape = 6;
  const auto is_high = [](uint32_t unit) { return unit >> 10 == 0x36; };
  const auto is_low = [](uint32_t unit) { return unit >> 10 == 0x37; };
  std::string made;
  const auto replace = [&](size_t at, std::string_view with) {
    if (made.empty()) made = text;
    made.replace(at, with.size(), with);
  };
  for (size_t at = 0; at < text.size();) {
    const bool encoded = text[at] == '\xED' && at + 2 < text.size() && static_cast<unsigned char>(text[at + 1]) >= 0xA0;
    if (encoded) replace(at, kReplacement);
    if (encoded || text[at] != '\\') {
      at += encoded ? kReplacement.size() : 1;
      continue;
    }
    const auto unit = escaped_unit(text, at);
    if (!unit) {
      at += 2;  // another escape, perhaps of a backslash
      continue;
    }
    const auto next = is_high(*unit) ? escaped_unit(text, at + kEscape) : std::nullopt;
    const bool pair = next && is_low(*next);
    if (!pair && (is_high(*unit) || is_low(*unit))) replace(at, "\\ufffd");
    at += pair ? 2 * kEscape : kEscape;
  }
  return made;
}

using Members = Json::object_t;

// An object's keys, as numbers of its members: in a large object, keys of their own would double its memory.
struct KeyHash {
  const Members* members;
  size_t operator()(uint32_t i) const noexcept { return std::hash<std::string_view>()(members->begin()[i].first); }
};
struct SameKey {
  const Members* members;
  bool operator()(uint32_t i, uint32_t j) const noexcept {
    return members->begin()[i].first == members->begin()[j].first;
  }
};
using KeyIndex = std::unordered_set<uint32_t, KeyHash, SameKey>;

// Builds the value itself: nlohmann's own parser looks for equal keys one by one, which takes quadratic time.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, const std::string& file, const JsonBounds& bounds)
      : text_(text), file_(file), bounds_(bounds) {}
  Json take() { return std::move(root_); }

  // For the message of work that ends here.
  void note_place() const {
    char path[96];
    char* at = path;
    const auto add = [&](std::string_view part) {
      at = std::copy_n(part.begin(), std::min<size_t>(part.size(), static_cast<size_t>(std::end(path) - at)), at);
    };
    for (const Open& open : open_) {
      if (open.value.is_array()) {
        char index[24];
        add({index,
             static_cast<size_t>(fmt::format_to_n(index, sizeof(index), "[{}]", open.value.size()).out - index)});
      } else {
        if (at != path) add(".");
        add(open.key);
      }
    }
    note_work("reading JSON, at {},", std::string_view(path, static_cast<size_t>(at - path)));
  }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }

  bool parse_error(size_t read, const std::string& token, const nlohmann::detail::exception& e) override {
    const size_t back = offending_bytes(e.what(), token);
    syntax_error(std::min(read - std::min(read, back), text_.size()), in_words(e.what()));
  }

  [[noreturn]] void syntax_error(size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, at);
    const size_t newline = before.rfind('\n');
    const std::string_view line = newline == before.npos ? before : before.substr(newline + 1);
    const auto lines = 1 + std::ranges::count(before, '\n');
    const auto column = 1 + std::ranges::count_if(line, [](char c) { return (c & 0xC0) != 0x80; });
    throw JsonError(file_.empty() ? fmt::format("not valid JSON: line {}, column {}: {}", lines, column, what)
                                  : fmt::format("{}:{}:{}: {}", file_, lines, column, what),
                    "");
  }

 private:
  struct Open {
    Json value;
    std::string key;                // key of an object's next value
    std::optional<KeyIndex> index;  // finds an object's keys, once they are many
  };

  template <class... A>
  JsonError refused(fmt::format_string<A...> f, A&&... a) const {
    const std::string what = fmt::format(f, std::forward<A>(a)...);
    return {file_.empty() ? what : fmt::format("{}: {}", file_, what), ""};
  }

  // Readers copy parts of a document, so a copy of it must fit, too.
  template <class Vector>
  void check_room(const Vector& vector) const {
    if (working_memory == nullptr) return;
    check_growth(vector);
    check_work(working_memory->held() - std::min(working_memory->held(), held_before_));
  }

  bool open(Json value) {
    if (std::cmp_equal(open_.size(), bounds_.depth))
      throw refused("JSON is nested deeper than {} levels", bounds_.depth);
    open_.push_back({.value = std::move(value), .key = {}, .index = {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (++values_ > bounds_.values) throw refused("JSON has more than {} values", bounds_.values);
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      auto& elements = open_.back().value.get_ref<Json::array_t&>();
      check_room(elements);
      elements.push_back(std::move(value));
    } else {
      put(open_.back(), std::move(value));
    }
    return true;
  }

  void put(Open& top, Json value) const {
    constexpr size_t kFew = 16;  // above this an index is faster than looking at each key
    auto& members = top.value.get_ref<Members&>();
    check_room(members);
    if (members.size() < kFew) {
      const auto known = members.find(top.key);
      if (known != members.end()) return replace(*known, std::move(value));
      members.emplace_back(std::move(top.key), std::move(value));
      return;
    }
    if (!top.index) {
      top.index.emplace(2 * kFew, KeyHash{&members}, SameKey{&members});
      for (uint32_t i = 0; i < members.size(); ++i) top.index->insert(i);
    }
    members.emplace_back(std::move(top.key), std::move(value));
    const auto [found, is_new] = top.index->insert(static_cast<uint32_t>(members.size() - 1));
    if (is_new) return;
    Json last = std::move(members.back().second);
    members.pop_back();
    replace(members.begin()[*found], std::move(last));
  }

  void replace(Members::value_type& member, Json value) const {
    if (bounds_.unique_keys) throw refused("key {} appears twice in one object", quote(member.first));
    member.second = std::move(value);
  }

  std::string_view text_;
  const std::string& file_;
  const JsonBounds& bounds_;
  Json root_;
  std::vector<Open> open_;
  size_t values_ = 0;
  const size_t held_before_ = working_memory != nullptr ? working_memory->held() : 0;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file, const JsonBounds& bounds) {
  const std::string replaced = bounds.replace_surrogates ? without_lone_surrogates(text) : "";
  if (!replaced.empty()) text = replaced;
  Builder builder(text, file, bounds);
  // nlohmann's parser takes a zero byte for the end of the text and would ignore the rest.
  if (const size_t zero = text.find('\0'); zero != text.npos) builder.syntax_error(zero, "a zero byte");
  try {
    Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const WorkingMemoryExceeded&) {
    builder.note_place();
    throw;
  }
  return builder.take();
}

std::string describe(const Json& value) {
  constexpr size_t kShownBytes = 64;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (!value.is_string()) return value.dump();
  const auto& text = value.get_ref<const std::string&>();
  size_t end = std::min(text.size(), kShownBytes);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return Json(text.substr(0, end)).dump(-1, ' ', false, Json::error_handler_t::replace) +
         (end < text.size() ? "…" : "");
}

}  // namespace quire
