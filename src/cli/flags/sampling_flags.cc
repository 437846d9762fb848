#include "cli/flags/sampling_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/flags/engine_options.h"

namespace quire {
namespace {

// What a model without a recommendation gets.
constexpr SamplingDefaults kFallback{
    .temperature = kDefaultTemperature, .top_p = kDefaultTopP, .min_p = kDefaultMinP, .top_k = kDefaultTopK};

template <class Number>
void add_number(CLI::App& app, const SamplingParameter& p, Number& value, const std::string& group) {
  app.add_option(std::string(p.flags), value, std::string(p.about))
      ->check(between(p.low, p.high))
      ->group(group)
      ->capture_default_str();
}

// A model may recommend this parameter; without the flag its recommendation counts.
template <class Number>
void add_recommended(CLI::App& app, const SamplingParameter& p, std::optional<Number> SamplingDefaults::*recommended,
                     Number otherwise, SamplingDefaults& given, const std::string& group) {
  const std::string help = fmt::format("{} (default: the model's recommendation, else {})", p.about,
                                       (kFallback.*recommended).value_or(otherwise));
  app.add_option(std::string(p.flags), given.*recommended, help)->check(between(p.low, p.high))->group(group);
}

void add_flag(CLI::App& app, const SamplingParameter& p, SamplingFlags& flags, const std::string& group) {
  SamplingParams& s = flags.others;
  const SamplingParams neutral;
  if (const auto* number = std::get_if<float SamplingParams::*>(&p.member)) {
    const auto* recommended = std::get_if<std::optional<float> SamplingDefaults::*>(&p.recommended);
    if (recommended) return add_recommended(app, p, *recommended, neutral.**number, flags.given, group);
    add_number(app, p, s.**number, group);
  } else if (const auto* count = std::get_if<int SamplingParams::*>(&p.member)) {
    const auto* recommended = std::get_if<std::optional<int> SamplingDefaults::*>(&p.recommended);
    if (recommended) return add_recommended(app, p, *recommended, neutral.**count, flags.given, group);
    add_number(app, p, s.**count, group);
  } else {
    app.add_flag(std::string(p.flags), s.*std::get<bool SamplingParams::*>(p.member), std::string(p.about))
        ->group(group);
  }
}

void add_breakers(CLI::App& command, SamplingParams& s, const std::string& group) {
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
  const std::string less_common = group + ", less common";
  for (const SamplingParameter& parameter : kSamplingParameters) {
    if (!parameter.flags.empty()) add_flag(command, parameter, flags, parameter.common ? group : less_common);
  }
  add_breakers(command, flags.others, less_common);
}

SamplingParams resolve_sampling(const SamplingFlags& flags, const SamplingDefaults& model) {
  SamplingParams sampling = flags.others;
  // A model that recommends anything is not mixed with defaults made for others.
  apply_defaults(sampling, model != SamplingDefaults{} ? model : kFallback);
  apply_defaults(sampling, flags.given);
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
