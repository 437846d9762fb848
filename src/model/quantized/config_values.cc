#include "model/quantized/config_values.h"

#include <algorithm>
#include <vector>

namespace quire {
namespace {

constexpr int kLargestGroup = 1 << 20;  // no row is longer
constexpr size_t kMostModules = 1 << 20;

}  // namespace

Error not_supported(const JsonField& field, std::string_view method, std::string_view what_works) {
  return unsupported("{}: {} is not supported for {}; {}", field.where(), describe(field.json()), method, what_works);
}

int read_choice(const JsonField& object, std::string_view key, std::string_view method,
                std::initializer_list<int> allowed) {
  const JsonField field = object.at(key);
  const int value = field.as<int>();
  if (std::ranges::find(allowed, value) == allowed.end()) throw not_supported(field, method, "use " + one_of(allowed));
  return value;
}

std::string read_word(const JsonField& object, std::string_view key, std::string_view method,
                      std::initializer_list<std::string_view> allowed) {
  const auto field = object.find(key);
  if (!field) return std::string(*allowed.begin());
  std::string word = field->string();
  std::ranges::transform(word, word.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::ranges::find(allowed, word) == allowed.end()) throw not_supported(*field, method, "use " + one_of(allowed));
  return word;
}

int read_group_size(const JsonField& object, std::string_view key, std::string_view method) {
  const auto field = object.find(key);
  if (!field) return 0;
  const int64_t group = field->integer(-1, kLargestGroup);
  if (group == -1) return 0;
  if (group != 16 && (group == 0 || group % 32 != 0))
    throw not_supported(*field, method, "use 16, a multiple of 32, or -1 for whole rows");
  return static_cast<int>(group);
}

void read_block(const JsonField& field, std::string_view method, CodedScheme& to) {
  if (field.array().size() != 2) throw field.error("expected two numbers, [outputs, inputs]");
  to.row_block = static_cast<int>(field.at(0).integer(1, kLargestGroup));
  to.col_block = static_cast<int>(field.at(1).integer(1, kLargestGroup));
  if (to.col_block != 16 && to.col_block % 32 != 0)
    throw not_supported(field.at(1), method, "use 16 or a multiple of 32");
}

void use_for_all(const CodedScheme& scheme, Quantization& to) {
  Quantization::Part part;
  part.modules.all = true;
  part.scheme = scheme;
  to.parts.push_back(std::move(part));
}

void check_names(const JsonField& object, std::string_view key) {
  const auto list = object.find(key);
  if (!list) return;
  for (const JsonField& name : list->elements(kMostModules)) name.string();
}

}  // namespace quire
