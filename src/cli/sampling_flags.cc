#include "cli/sampling_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <vector>

#include "cli/engine_options.h"

namespace quire {
namespace {

template <class T>
CLI::Option* add(CLI::App& command, const std::string& group, const char* names, T& value, const char* help) {
  return command.add_option(names, value, help)->group(group);
}

}  // namespace

void add_sampling_flags(CLI::App& command, SamplingFlags& flags, const std::string& group) {
  SamplingDefaults& g = flags.given;
  SamplingParams& s = flags.others;
  constexpr int kMost = std::numeric_limits<int>::max();
  add(command, group, "--temp,--temperature", g.temperature,
      "randomness; 0: always the most probable token (default: the model's recommendation, else 0.8)")
      ->check(between(0.0, 1e6));
  add(command, group, "--top-k", g.top_k, "keep the k most probable tokens; 0: all (default: the model's, else 40)")
      ->check(between(-1, kMost));
  add(command, group, "--top-p", g.top_p,
      "keep the most probable tokens that together reach p; 1: all (default: the model's, else 0.95)")
      ->check(between(0.0, 1.0));
  add(command, group, "--min-p", g.min_p,
      "keep tokens at least p times as probable as the best; 0: all (default: the model's, else 0.05)")
      ->check(between(0.0, 1.0));
  add(command, group, "--repetition-penalty,--repeat-penalty", g.repetition_penalty,
      "above 1 discourages tokens of the prompt and answer so far (default: the model's, else 1)")
      ->check(between(0.01, 100.0));
  add(command, group, "--typical-p,--typical", s.typical_p,
      "locally typical sampling: keep the mass p whose surprisal is closest to the entropy; 1: all")
      ->capture_default_str()
      ->check(between(0.0, 1.0));
  add(command, group, "--repeat-last-n", s.repeat_last_n, "tokens that the penalties look back on; -1: all")
      ->capture_default_str()
      ->check(between(-1, kMost));
  add(command, group, "--frequency-penalty", s.frequency_penalty, "for each occurrence in the answer, -2 to 2")
      ->capture_default_str()
      ->check(between(-2.0, 2.0));
  add(command, group, "--presence-penalty", s.presence_penalty, "once for each token in the answer, -2 to 2")
      ->capture_default_str()
      ->check(between(-2.0, 2.0));
}

SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& model) {
  SamplingParams sampling = flags.others;
  const SamplingDefaults& given = flags.given;
  // A model that recommends anything is not mixed with defaults made for others.
  const bool recommends = model != SamplingDefaults{};
  const SamplingDefaults fallback =
      recommends ? SamplingDefaults{}
                 : SamplingDefaults{.temperature = kDefaultTemperature,
                                    .top_p = kDefaultTopP,
                                    .min_p = kDefaultMinP,
                                    .top_k = kDefaultTopK};
  const auto choose = [&](auto SamplingDefaults::*field, auto SamplingParams::*target) {
    for (const SamplingDefaults* source : {&given, &model, &fallback}) {
      if (!(source->*field)) continue;
      sampling.*target = *(source->*field);
      return;
    }
  };
  choose(&SamplingDefaults::temperature, &SamplingParams::temperature);
  choose(&SamplingDefaults::top_k, &SamplingParams::top_k);
  choose(&SamplingDefaults::top_p, &SamplingParams::top_p);
  choose(&SamplingDefaults::min_p, &SamplingParams::min_p);
  choose(&SamplingDefaults::repetition_penalty, &SamplingParams::repetition_penalty);
  return sampling;
}

std::string describe_defaults(const SamplingDefaults& d) {
  std::vector<std::string> parts;
  if (d.temperature) parts.push_back(fmt::format("temperature {}", *d.temperature));
  if (d.top_k) parts.push_back(fmt::format("top-k {}", *d.top_k));
  if (d.top_p) parts.push_back(fmt::format("top-p {}", *d.top_p));
  if (d.min_p) parts.push_back(fmt::format("min-p {}", *d.min_p));
  if (d.repetition_penalty) parts.push_back(fmt::format("repetition penalty {}", *d.repetition_penalty));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string describe_sampling(const SamplingParams& s, const SamplingFlags& flags, const SamplingDefaults& model) {
  SamplingDefaults effective{.temperature = s.temperature};
  if (s.temperature > 0) {
    if (s.top_k > 0) effective.top_k = s.top_k;
    if (s.top_p < 1) effective.top_p = s.top_p;
    if (s.min_p > 0) effective.min_p = s.min_p;
  }
  if (s.repetition_penalty != 1) effective.repetition_penalty = s.repetition_penalty;
  const bool recommends = model != SamplingDefaults{}, overridden = flags.given != SamplingDefaults{};
  const char* source = recommends ? "recommended for this model" : "Quire's defaults; the model recommends none";
  return fmt::format("{} ({}{})", describe_defaults(effective), source, overridden ? ", changed by flags" : "");
}

}  // namespace quire
