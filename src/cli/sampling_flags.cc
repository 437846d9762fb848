#include "cli/sampling_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>
#include <vector>

#include "cli/engine_options.h"

namespace quire {
namespace {

template <class T>
CLI::Option* add(CLI::App& command, const std::string& group, const char* names, T& value, const char* help) {
  return command.add_option(names, value, help)->group(group);
}

// The others: little used, and named as in llama.cpp.
void add_special_samplers(CLI::App& command, SamplingParams& s, const std::string& group) {
  const auto add_number = [&](const char* names, auto& value, const char* help, double low, double high) {
    add(command, group, names, value, help)->capture_default_str()->check(between(low, high));
  };
  constexpr int kMost = std::numeric_limits<int>::max();
  add_number("--top-n-sigma,--top-nsigma", s.top_n_sigma,
             "keep logits within n standard deviations of the best; up to 0: all", -1, 1000);
  add_number("--xtc-probability", s.xtc_probability,
             "how often to remove the top choices, all that reach the threshold but the least probable of them", 0, 1);
  add_number("--xtc-threshold", s.xtc_threshold, "the probability that makes a token a top choice", 0, 1);
  add_number("--dynatemp-range", s.dynatemp_range,
             "the entropy sets the temperature, from temperature - range to temperature + range; 0: off", 0, 100);
  add_number("--dynatemp-exponent,--dynatemp-exp", s.dynatemp_exponent,
             "the power of the entropy that --dynatemp-range uses", 0, 100);
  add_number("--mirostat", s.mirostat,
             "1: Mirostat, 2: Mirostat 2.0, in place of all limits (--top-k, --top-p, ... --dynatemp-range); 0: off", 0,
             2);
  add_number("--mirostat-tau,--mirostat-ent", s.mirostat_tau, "the surprise of tokens to keep to, in bits", 0, 100);
  add_number("--mirostat-eta,--mirostat-lr", s.mirostat_eta, "how fast Mirostat adapts", 0, 1);
  add_number("--dry-multiplier", s.dry_multiplier,
             "strength of DRY, which discourages the tokens that continue a repetition; 0: off", 0, 100);
  add_number("--dry-base", s.dry_base, "by how much the penalty grows with each repeated token", 1, 100);
  add_number("--dry-allowed-length", s.dry_allowed_length, "repetitions from this length on have a penalty", 1, kMost);
  add_number("--dry-penalty-last-n", s.dry_penalty_last_n, "tokens that DRY looks back on; -1: all", -1, kMost);
  // One at a time, because CLI11 reads "[END]" as a list otherwise.
  command
      .add_option_function<std::vector<std::string>>(
          "--dry-sequence-breaker",
          [&s](std::vector<std::string> texts) {
            if (texts == std::vector<std::string>{"none"}) texts.clear();
            s.dry_sequence_breakers = std::move(texts);
          },
          "no repetition extends over this text; may be repeated; none: no breakers (default: a line end, :, \" and *)")
      ->type_name("TEXT")
      ->expected(1)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(group);
}

// "DRY 0.8 (base 1.75, from 2 tokens)", … for the samplers that are on.
std::vector<std::string> describe_special_samplers(const SamplingParams& s) {
  std::vector<std::string> parts;
  if (s.dry_multiplier > 0)
    parts.push_back(
        fmt::format("DRY {} (base {}, from {} tokens)", s.dry_multiplier, s.dry_base, s.dry_allowed_length));
  if (s.temperature == 0) return parts;
  if (s.mirostat > 0) {
    parts.push_back(fmt::format("Mirostat {} (tau {}, eta {})", s.mirostat, s.mirostat_tau, s.mirostat_eta));
    return parts;
  }
  if (s.typical_p < 1) parts.push_back(fmt::format("typical-p {}", s.typical_p));
  if (s.top_n_sigma > 0) parts.push_back(fmt::format("top-n-sigma {}", s.top_n_sigma));
  if (s.xtc_probability > 0) parts.push_back(fmt::format("XTC {} (from {})", s.xtc_probability, s.xtc_threshold));
  if (s.dynatemp_range > 0)
    parts.push_back(fmt::format("dynamic temperature ±{} (exponent {})", s.dynatemp_range, s.dynatemp_exponent));
  return parts;
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
  add_special_samplers(command, s, group + ", less common");
}

SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& model) {
  SamplingParams sampling = flags.others;
  const SamplingDefaults& given = flags.given;
  // A model that recommends anything is not mixed with defaults made for others.
  const bool recommends = model != SamplingDefaults{};
  const SamplingDefaults fallback = recommends ? SamplingDefaults{}
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
  if (s.temperature > 0 && s.mirostat == 0) {
    if (s.top_k > 0) effective.top_k = s.top_k;
    if (s.top_p < 1) effective.top_p = s.top_p;
    if (s.min_p > 0) effective.min_p = s.min_p;
  }
  if (s.repetition_penalty != 1) effective.repetition_penalty = s.repetition_penalty;
  std::vector<std::string> parts = describe_special_samplers(s);
  const bool recommends = model != SamplingDefaults{};
  const bool overridden = flags.given != SamplingDefaults{} || !parts.empty();
  const char* source = recommends ? "recommended for this model" : "Quire's defaults; the model recommends none";
  parts.insert(parts.begin(), describe_defaults(effective));
  return fmt::format("{} ({}{})", fmt::join(parts, ", "), source, overridden ? ", changed by flags" : "");
}

}  // namespace quire
