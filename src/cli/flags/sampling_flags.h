// How `quire run` chooses tokens: flags first, then what the model's authors recommend, then Quire's defaults.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "quire/engine.h"

namespace quire {

// For models without a recommendation: llama.cpp's defaults, so that the same prompt gives a similar answer.
inline constexpr float kDefaultTemperature = 0.8f, kDefaultTopP = 0.95f, kDefaultMinP = 0.05f;
inline constexpr int kDefaultTopK = 40;

struct SamplingFlags {
  SamplingDefaults given;  // the flags on the command line that a model can recommend
  SamplingParams others;   // the other flags
};

// Adds --temp, --top-k, … to the group `group` of the help, and DRY, XTC, Mirostat and the like to a group after it.
void add_sampling_flags(CLI::App& command, SamplingFlags& flags, const std::string& group);

// What is in force for this model.
SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& model);

// "temperature 0.2, top-p 0.9 (recommended for this model)". Settings without effect are left out.
std::string describe_sampling(const SamplingParams& sampling, const SamplingFlags& flags,
                              const SamplingDefaults& model);
// The model's recommendation by itself, for `serve`; empty: none.
std::string describe_defaults(const SamplingDefaults& model);

}  // namespace quire
