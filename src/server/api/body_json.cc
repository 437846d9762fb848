#include "server/api/body_json.h"

#include <unordered_map>
#include <vector>

#include "server/api/error.h"

namespace quire {
namespace {

constexpr size_t kShownBytes = 64;

// ordered_json's own parser looks for equal keys one by one, which a client can turn into quadratic time.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(std::string_view param) : param_(param) {}
  Json take() { return std::move(root_); }

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

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
    std::string_view what = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    if (const size_t end = what.find("] "); end != what.npos) what.remove_prefix(end + 2);
    throw bad_request(param_, "not valid JSON: {}", what.substr(0, 300));
  }

 private:
  struct Open {
    Json value;
    std::string key;                                // of an object's next value
    std::unordered_map<std::string, size_t> index;  // of an object's keys, once they are many
  };

  bool open(Json value) {
    if (open_.size() == kMaxBodyDepth) throw bad_request(param_, "JSON is nested more than {} deep", kMaxBodyDepth);
    open_.push_back({.value = std::move(value), .key = {}, .index = {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (++values_ > kMaxBodyValues) throw bad_request(param_, "JSON has more than {} values", kMaxBodyValues);
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.push_back(std::move(value));
    } else {
      put(open_.back(), std::move(value));
    }
    return true;
  }

  static void put(Open& top, Json value) {
    constexpr size_t kFew = 16;
    auto& members = top.value.get_ref<Json::object_t&>();
    if (members.size() < kFew) {
      members[top.key] = std::move(value);
      return;
    }
    if (top.index.empty()) {
      for (size_t i = 0; i < members.size(); ++i) top.index.emplace((members.begin() + static_cast<long>(i))->first, i);
    }
    const auto [found, is_new] = top.index.emplace(top.key, members.size());
    if (is_new) {
      members.emplace_back(std::move(top.key), std::move(value));
    } else {
      (members.begin() + static_cast<long>(found->second))->second = std::move(value);
    }
  }

  std::string_view param_;
  Json root_;
  std::vector<Open> open_;
  size_t values_ = 0;
};

}  // namespace

Json parse_bounded_json(std::string_view text, std::string_view param) {
  Builder builder(param);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) throw bad_request(param, "not valid JSON");
  return builder.take();
}

std::string describe(const Json& value) {
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
