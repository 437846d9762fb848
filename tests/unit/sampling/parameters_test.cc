// The table of sampling parameters, and what is made of it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <variant>

#include "base/files/mapped_file.h"
#include "error_of.h"
#include "paths.h"
#include "quire/sampling_params.h"

namespace quire {
namespace {

constexpr int kParameterVocab = 100;

// A copy of the defaults whose parameter has this value.
SamplingParams with(const SamplingParameter& parameter, double value) {
  SamplingParams params;
  std::visit([&](auto member) { params.*member = static_cast<std::decay_t<decltype(params.*member)>>(value); },
             parameter.member);
  return params;
}

std::string default_of(const SamplingParameter& parameter) {
  const SamplingParams defaults;
  return std::visit([&](auto member) { return fmt::format("{}", defaults.*member); }, parameter.member);
}

bool is_switch(const SamplingParameter& parameter) {
  return std::holds_alternative<bool SamplingParams::*>(parameter.member);
}

std::string markdown() {
  std::string table = "| parameter | values | default | effect |\n|---|---|---|---|\n";
  for (const SamplingParameter& p : kSamplingParameters) {
    const std::string values = is_switch(p)          ? "true, false"
                               : p.high == kMaxCount ? fmt::format("from {}", p.low)
                                                     : fmt::format("{} to {}", p.low, p.high);
    table += fmt::format("| `{}` | {} | {} | {} |\n", p.name, values, default_of(p), p.about);
  }
  return table;
}

TEST(SamplingParameters, AreDocumented) {
  EXPECT_NE(read_text_file(source_dir() / "docs/api.md").find(markdown()), std::string::npos)
      << "replace the table of docs/api.md by this one:\n"
      << markdown();
}

TEST(SamplingParameters, HaveNamesAndFlagsOfTheirOwn) {
  std::set<std::string_view> names;
  for (const SamplingParameter& p : kSamplingParameters) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_FALSE(p.about.empty()) << p.name;
    EXPECT_EQ(&sampling_parameter("min_p") == &p, p.name == "min_p");
  }
}

TEST(SamplingParameters, AcceptTheirBoundsAndNothingBeyond) {
  for (const SamplingParameter& p : kSamplingParameters) {
    if (is_switch(p)) continue;
    const bool whole = std::holds_alternative<int SamplingParams::*>(p.member);
    for (const double bound : {p.low, p.high}) {
      EXPECT_NO_THROW(validate(with(p, bound), kParameterVocab)) << p.name << ' ' << bound;
      if (bound == kMaxCount) continue;
      const double beyond = bound + (bound == p.low ? -1 : 1) * (whole ? 1 : 0.5);
      EXPECT_EQ(error_of([&] { validate(with(p, beyond), kParameterVocab); }),
                fmt::format("{} must be {}, not {} ({})", p.name, range_text(p), beyond, p.about));
    }
    if (!whole) {
      EXPECT_THROW(validate(with(p, std::nan("")), kParameterVocab), Error) << p.name;
    }
  }
}

TEST(SamplingParameters, TakeOverWhatAModelRecommends) {
  SamplingParams params{.temperature = 0.5f, .top_k = 7, .min_p = 0.25f};
  apply_defaults(params, {.top_p = 0.75f, .repetition_penalty = 1.5f, .top_k = 20});
  EXPECT_EQ(params, (SamplingParams{
                        .temperature = 0.5f, .top_k = 20, .top_p = 0.75f, .min_p = 0.25f, .repetition_penalty = 1.5f}));
}

}  // namespace
}  // namespace quire
