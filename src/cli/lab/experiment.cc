#include "cli/lab/experiment.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "engine/memory_plan.h"

namespace quire {

std::optional<bool> holds(const LabNumber& n) {
  switch (n.claim) {
    case Claim::kEqual:
      return n.value == n.foretold;
    case Claim::kAbout:
      return n.value <= n.foretold * n.factor && n.value * n.factor >= n.foretold;
    case Claim::kAtMost:
      return n.value <= n.foretold * n.factor;
    case Claim::kAtLeast:
      return n.value * n.factor >= n.foretold;
    case Claim::kNone:
      break;
  }
  return std::nullopt;
}

std::span<const Experiment* const> experiments() {
  static constexpr std::array<const Experiment*, 10> kAll{
      &kKvCacheExperiment,     &kBatchingExperiment,      &kPagingExperiment, &kChunkedPrefillExperiment,
      &kPrefixCacheExperiment, &kKvHeadsExperiment,       &kWindowExperiment, &kQuantizationExperiment,
      &kSpeculationExperiment, &kTiledAttentionExperiment};
  return kAll;
}

int context_of(const EngineOptions& options) { return read_model_facts(options).config.max_positions; }

std::string shell_word(std::string_view text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == text.npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else
      quoted += c;
  }
  return quoted + "'";
}

std::string lab_number_text(double value) {
  constexpr double kWhole = 1e15;  // beyond it a double does not hold every integer
  if (value != std::floor(value) || std::abs(value) >= kWhole) {
    if (std::abs(value) < 1000 || std::abs(value) >= kWhole) return fmt::format("{:.3g}", value);
    value = std::round(value);
  }
  std::string digits = fmt::format("{:.0f}", std::abs(value));
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return (value < 0 ? "-" : "") + digits;
}

std::string times_text(double ratio) {
  return fmt::format("{} times", ratio < 10 ? fmt::format("{:.2g}", ratio) : lab_number_text(std::round(ratio)));
}

}  // namespace quire
