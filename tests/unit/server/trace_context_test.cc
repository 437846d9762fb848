// traceparent, with the cases of the W3C's test suite (https://github.com/w3c/trace-context/blob/main/test/test.py).
#include "server/otlp/trace_context.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

namespace quire {
namespace {

constexpr std::string_view kTrace = "12345678901234567890123456789012", kParent = "1234567890123456";

std::string header(std::string_view version, std::string_view trace, std::string_view parent, std::string_view flags,
                   std::string_view rest = {}) {
  return fmt::format("{}-{}-{}-{}{}", version, trace, parent, flags, rest);
}

TEST(Traceparent, IsReadIfWellFormed) {
  const auto context = parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  ASSERT_TRUE(context);
  EXPECT_EQ(context->trace,
            (TraceId{0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c}));
  EXPECT_EQ(context->parent, (SpanId{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}));
  EXPECT_TRUE(context->sampled);
}

TEST(Traceparent, FollowsTheTestSuiteOfTheStandard) {
  const std::string trace(kTrace), parent(kParent);
  const auto with = [](std::string text, size_t at, char c) {
    text[at] = c;
    return text;
  };
  struct Case {
    const char* name;
    std::string text;
    bool valid;
  };
  const Case cases[] = {
      {"included_tracestate_missing", header("00", trace, parent, "01"), true},
      {"sampled flag off", header("00", trace, parent, "00"), true},
      {"header missing", "", false},
      {"version_0x00: data after the flags", header("00", trace, parent, "01", "."), false},
      {"version_0x00: with a dash", header("00", trace, parent, "01", "-what-the-future-will-be-like"), false},
      {"version_0xcc: a future version", header("cc", trace, parent, "01"), true},
      {"version_0xcc: with more fields", header("cc", trace, parent, "01", "-what-the-future-will-be-like"), true},
      {"version_0xcc: with a dash alone", header("cc", trace, parent, "01", "-"), true},
      {"version_0xcc: more without a dash", header("cc", trace, parent, "01", ".what-the-future-will-be-like"), false},
      {"version_0xff", header("ff", trace, parent, "01"), false},
      {"version_illegal_characters", header(".0", trace, parent, "01"), false},
      {"version_illegal_characters", header("0.", trace, parent, "01"), false},
      {"version in upper case", header("0A", trace, parent, "01"), false},
      {"version_too_long", header("000", trace, parent, "01"), false},
      {"version_too_long", header("0000", trace, parent, "01"), false},
      {"version_too_short", header("0", trace, parent, "01"), false},
      {"trace_id_all_zero", header("00", std::string(32, '0'), parent, "01"), false},
      {"trace_id_illegal_characters", header("00", with(trace, 0, '.'), parent, "01"), false},
      {"trace_id_illegal_characters", header("00", with(trace, 31, '.'), parent, "01"), false},
      {"trace id in upper case", header("00", with(trace, 5, 'A'), parent, "01"), false},
      {"trace_id_too_long", header("00", trace + "3", parent, "01"), false},
      {"trace_id_too_short", header("00", trace.substr(1), parent, "01"), false},
      {"parent_id_all_zero", header("00", trace, std::string(16, '0'), "01"), false},
      {"parent_id_illegal_characters", header("00", trace, with(parent, 0, '.'), "01"), false},
      {"parent_id_illegal_characters", header("00", trace, with(parent, 15, '.'), "01"), false},
      {"parent id in upper case", header("00", trace, with(parent, 3, 'F'), "01"), false},
      {"parent_id_too_long", header("00", trace, parent + "7", "01"), false},
      {"parent_id_too_short", header("00", trace, parent.substr(1), "01"), false},
      {"trace_flags_illegal_characters", header("00", trace, parent, ".0"), false},
      {"trace_flags_illegal_characters", header("00", trace, parent, "0."), false},
      {"trace_flags_too_long", header("00", trace, parent, "001"), false},
      {"trace_flags_too_short", header("00", trace, parent, "1"), false},
      {"flags of the future", header("00", trace, parent, "ff"), true},
      {"spaces inside", header("00", trace, parent, " 1"), false},
      {"underscores for dashes", "00_" + trace + "_" + parent + "_01", false},
      {"not UTF-8", header("00", with(trace, 4, '\xff'), parent, "01"), false},
      {"a byte 0", header("00", with(trace, 4, '\0'), parent, "01"), false},
      {"much too long", header("00", trace, parent, "01", std::string(10'000, '-')), false},
  };
  for (const Case& c : cases) EXPECT_EQ(parse_traceparent(c.text).has_value(), c.valid) << c.name << ": " << c.text;
  const std::string whole = header("00", trace, parent, "01");
  for (size_t size = 0; size < whole.size(); ++size) EXPECT_FALSE(parse_traceparent(whole.substr(0, size))) << size;
}

TEST(Traceparent, SampledIsTheLowestFlag) {
  for (const auto& [flags, sampled] :
       {std::pair{"00", false}, {"01", true}, {"02", false}, {"03", true}, {"fe", false}, {"ff", true}})
    EXPECT_EQ(parse_traceparent(header("00", kTrace, kParent, flags))->sampled, sampled) << flags;
}

TEST(Tracestate, IsPassedOnIfItIsPrintableAndShort) {
  EXPECT_TRUE(is_tracestate("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
  EXPECT_TRUE(is_tracestate(std::string(512, 'a')));
  EXPECT_FALSE(is_tracestate(std::string(513, 'a')));
  EXPECT_FALSE(is_tracestate(""));
  EXPECT_FALSE(is_tracestate("a=\x01"));
  EXPECT_FALSE(is_tracestate("a=\xff"));
}

}  // namespace
}  // namespace quire
