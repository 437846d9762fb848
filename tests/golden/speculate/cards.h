// Golden values of drafters: what their cards say of two prompts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "golden/engine/expected_tensors.h"
#include "kernels/kernels.h"
#include "model/workspace.h"
#include "ops/rows.h"
#include "quire/types.h"

namespace quire {

constexpr int kPrompts = 2, kTokens = 64;
constexpr DecoderLimits kLimits{.max_rows = 128, .max_logits = 32, .max_positions = kTokens, .max_hidden = 128};

// Expected values of both prompts.
struct Card {
  explicit Card(const std::filesystem::path& folder) : file(Safetensors::open(folder / "expected.safetensors")) {}
  std::vector<float> floats(int prompt, const std::string& name) const {
    return values<float>(file, "prompt" + std::to_string(prompt) + "." + name);
  }
  TokenIds ids(int prompt, const std::string& name) const {
    return values<int32_t>(file, "prompt" + std::to_string(prompt) + "." + name);
  }
  Safetensors file;
};

// logits [rows][vocabulary] have the best 20 that the card lists for each row.
inline void expect_best(const Card& card, int prompt, const std::string& name, const std::string& rows,
                        std::span<const float> logits, double tolerance) {
  const TokenIds ids = card.ids(prompt, name + "top20_ids" + rows);
  const auto wanted = card.floats(prompt, name + "top20_logits" + rows);
  ASSERT_FALSE(wanted.empty()) << name;
  const size_t count = wanted.size() / 20, vocab = logits.size() / count;
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(logits[i / 20 * vocab + static_cast<size_t>(ids[i])], wanted[i], tolerance)
        << "prompt " << prompt << " " << name << " row " << i / 20;
}

// Memory for rows of numbers in a file.
struct OwnedRows {
  std::vector<float> memory;
  Rows rows;
};
inline OwnedRows rows_of(std::vector<float> values, int cols) {
  OwnedRows r{std::move(values), {}};
  r.rows = {r.memory.data(), cols, static_cast<size_t>(cols)};
  return r;
}

// 0, 1, ...
inline std::vector<int32_t> numbered_rows(int count) {
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// All kernel sets, or the best one.
inline std::vector<std::string> kernel_names(bool all) {
  std::vector<std::string> names;
  for (const KernelSet* set : available_kernels()) {
    if (all || set == available_kernels().back()) names.emplace_back(set->name);
  }
  return names;
}

}  // namespace quire
