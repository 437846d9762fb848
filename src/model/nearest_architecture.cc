#include "model/nearest_architecture.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

namespace quire {
namespace {

std::string stem(std::string_view name) {
  for (const std::string_view ending : {"ForCausalLM", "ForConditionalGeneration", "LMHeadModel"}) {
    if (name.ends_with(ending)) name.remove_suffix(ending.size());
  }
  std::string lower(name);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return lower;
}

// Levenshtein's: characters to insert, remove or replace.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string_view nearest_architecture(std::string_view name, std::span<const std::string_view> known) {
  constexpr size_t kLongest = 64, kAlike = 4, kMisspelt = 2;  // characters
  const std::string wanted = stem(name.substr(0, kLongest));
  std::string_view nearest;
  size_t least = kLongest;
  for (const std::string_view candidate : known) {
    const std::string other = stem(candidate);
    const auto [end, unused] = std::ranges::mismatch(wanted, other);
    const auto same = static_cast<size_t>(end - wanted.begin());
    const size_t changes = distance(wanted, other);
    // Short names are all a few characters apart.
    const bool is_near = same >= kAlike || changes == 0 || (changes <= kMisspelt && other.size() > 2 * kMisspelt);
    if (!is_near || changes >= least) continue;
    least = changes;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace quire
