#include "cuda/linear/linear_variant.h"

#include <array>
#include <cstddef>
#include <utility>

#include "cuda/linear/linear_many_rows.h"
#include "kernels/kind_names.h"

namespace quire::cuda {
namespace {

// More sums of ranges than this are slower to add than to make.
constexpr int64_t kMostApart = int64_t{16} << 20;

constexpr std::array<const char*, 3> kNamesOfForms = {"", " half", " super"};

}  // namespace

std::vector<LinearVariant> variants_of(const DeviceFacts& facts, const LaunchKind& kind) {
  using enum LinearKernel;
  const bool whole_rows = kind.inputs == Activations::kInt8Row;
  if (kind.inputs != Activations::kBf16 && !(whole_rows && takes_many_rows(facts, kind, kind.rows))) return {};
  std::vector<LinearVariant> variants;
  if (kind.rows <= 8) {
    for (const int panels : {1, 2}) {
      if (kind.gated && panels == 1) continue;
      for (const bool prepares : {false, true})
        variants.push_back({.kernel = kFewRows, .panels = panels, .prepares = prepares});
      variants.push_back({.kernel = kRows, .panels = panels});
    }
  } else if (kind.rows > 16 && (kind.gated || !takes_many_rows(facts, kind, kind.rows))) {
    variants = {{.kernel = kRows}, {.kernel = kTiles}};
  } else if (kind.rows > 16) {
    for (const bool apart : {false, true}) {
      if (apart && int64_t{kind.rows} * kind.panels * kPanel * kSplits > kMostApart) continue;
      if (kind.codes != Codes::kBf16 && !whole_rows) {
        variants.push_back({.kernel = kWarpgroups, .apart = apart});
        continue;
      }
      for (const int columns : {64, 128, 256}) {
        if (columns / 2 >= kind.rows || columns * 16 < kind.rows) continue;
        if (whole_rows) {
          variants.push_back({.kernel = kWarpgroups, .columns = columns, .apart = apart});
          continue;
        }
        for (const int ahead : {0, 4, 8})
          variants.push_back({.kernel = kWarpgroups, .columns = columns, .apart = apart, .ahead = ahead});
        if (!facts.clusters || columns < 128) continue;
        for (const int cluster : {2, 4}) {
          for (const int ahead : {0, 4}) {
            variants.push_back(
                {.kernel = kWarpgroups, .columns = columns, .cluster = cluster, .apart = apart, .ahead = ahead});
          }
        }
      }
    }
  }
  return variants;
}

std::string name(const LaunchKind& k) {
  std::string text = kCodesNames[static_cast<size_t>(k.codes)];
  text += kNamesOfForms[static_cast<size_t>(k.form)];
  if (k.halves) text += " halves";
  if (k.minima) text += " minima";
  text += std::string(", ") + kInputNames[static_cast<size_t>(k.inputs)] + " inputs";
  if (k.gated) text += ", gated";
  return text + ", " + std::to_string(k.panels) + " panels, " + std::to_string(k.blocks) + " blocks, " +
         std::to_string(k.rows) + " rows";
}

std::string name(const LinearVariant& v) {
  constexpr std::array<const char*, 5> kNames = {"usual", "few rows", "rows", "tiles", "warpgroups"};
  std::string text = kNames[static_cast<size_t>(v.kernel)];
  if (v.panels > 0) text += ", " + std::to_string(v.panels) + (v.panels == 1 ? " panel" : " panels");
  if (v.prepares) text += ", prepares inputs";
  if (v.columns > 0) text += ", " + std::to_string(v.columns) + " columns, " + std::to_string(v.ahead) + " ahead";
  if (v.cluster > 0) text += ", clusters of " + std::to_string(v.cluster);
  if (v.apart) text += ", ranges apart";
  return text;
}

LinearVariant VariantTable::find(const LaunchKind& kind) const {
  const std::lock_guard lock(mutex_);
  if (notes_) asked_.push_back(kind);
  const auto at = chosen_.find(kind);
  return at == chosen_.end() ? LinearVariant{} : at->second;
}

void VariantTable::choose(const LaunchKind& kind, const LinearVariant& variant) {
  const std::lock_guard lock(mutex_);
  chosen_[kind] = variant;
}

std::vector<LaunchKind> VariantTable::take_asked() {
  const std::lock_guard lock(mutex_);
  return std::exchange(asked_, {});
}

}  // namespace quire::cuda
