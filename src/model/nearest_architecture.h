// For messages about an architecture that is not supported: the known one that its name resembles.
#pragma once

#include <span>
#include <string_view>

namespace quire {

// A misspelling, or a relative: names that begin alike (Qwen3NextForCausalLM, Qwen3ForCausalLM). Ignores case, and the
// endings that all names share. Empty: none is near.
std::string_view nearest_architecture(std::string_view name, std::span<const std::string_view> known);

}  // namespace quire
