// The report of a trace as people and programs read it.
#include "cli/trace/report.h"

#include <gtest/gtest.h>

#include "unit/trace/known_trace.h"
#include "unit/trace/temporary_trace.h"

namespace quire {
namespace {

TraceSummary known_summary(bool with_end = true) {
  const testing::TemporaryTrace trace(testing::known_trace(with_end));
  return summarize_trace(trace.path(), 2);
}

TEST(TraceReport, OfAKnownTraceIsThis) {
  EXPECT_EQ(to_text(known_summary()),
            R"("tiny": avx2 kernels, activations int8x2, 2 threads, from 2023-11-14 22:13:20 UTC
3 steps in 0.062 s

time
                                ms    share
in steps                    40.000   64.5 %
idle: no request            17.000   27.4 %
waiting for the page store   3.000    4.8 %
between steps                2.000    3.2 %
all                         62.000  100.0 %

steps by kind (ms)
steps        ms   share  count    mean     p99  prompt rows  decode rows  drafts  tokens
prefill  10.000  25.0 %      1  10.000  10.000            8            0       0       1
mixed    10.000  25.0 %      1  10.000  10.000            4            1       0       1
decode   20.000  50.0 %      1  20.000  20.000            0            2       3       1

phases of steps (ms)
phase         ms   share  count    mean     p99
schedule   3.000   7.5 %      3   1.000   1.000
forward   37.000  92.5 %      3  12.333  19.000

operations of forward passes (ms; share of all steps)
operation      ms   share  count   mean     p99
down       20.000  50.0 %      3  6.667  10.000
attention  17.000  42.5 %      3  5.667   9.000

answers: 2 finished (1 cancelled, 1 stop), 1 unfinished; 1 preemption
tokens: 15 of prompts, 2 of them cached; 3 generated; 1 of 3 drafted right
ms                      count    mean     p50     p99    most
queued                      2   8.000   6.000  10.000  10.000
time to first token         1  16.000  16.000  16.000  16.000
time per further token      1  26.000  26.000  26.000  26.000
whole answer                2  39.000  10.000  68.000  68.000

slowest steps (ms)
step  kind     what took longest                              at s      ms  sequences  prompt rows  decode rows  drafts
3     decode   down 10.000, attention 9.000, schedule 1.000  0.052  20.000          2            0            2       3
1     prefill  down 5.000, attention 4.000, schedule 1.000   0.010  10.000          1            8            0       0
)");
}

TEST(TraceReport, AsJsonHasTheSameNumbers) {
  const Json json = to_json(known_summary());
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["end"], "closed");
  EXPECT_EQ(json["steps"], 3);
  EXPECT_NEAR(json["time_ms"]["steps"].get<double>(), 40, 1e-3);
  EXPECT_NEAR(json["kinds"]["decode"]["share"].get<double>(), 0.5, 1e-6);
  EXPECT_EQ(json["kinds"]["decode"]["drafts"], 3);
  EXPECT_NEAR(json["phases"]["forward"]["total_ms"].get<double>(), 37, 1e-3);
  EXPECT_NEAR(json["operations"]["attention"]["p99_ms"].get<double>(), 9, 1e-3);
  EXPECT_EQ(json["answers"]["reasons"]["stop"], 1);
  EXPECT_NEAR(json["answers"]["ttft"]["mean_ms"].get<double>(), 16, 1e-3);
  EXPECT_EQ(json["slowest"].size(), 2u);
  EXPECT_EQ(json["slowest"][0]["step"], 3);
  EXPECT_EQ(json["slowest"][0]["parts_ms"].begin().key(), "down");
  EXPECT_TRUE(json["warnings"].empty());
}

TEST(TraceReport, WarnsOfWhatIsMissing) {
  TraceSummary summary = known_summary(false);
  ASSERT_EQ(warnings_of(summary).size(), 1u);
  EXPECT_TRUE(warnings_of(summary)[0].starts_with("the trace lacks its end:")) << warnings_of(summary)[0];
  summary.end = TraceEnd::kLimit;
  summary.losses = {.steps = 4, .operations = 5, .answers = 6};
  const std::vector<std::string> all = warnings_of(summary);
  ASSERT_EQ(all.size(), 4u);
  EXPECT_NE(all[0].find("--trace-limit"), std::string::npos);
  EXPECT_TRUE(all[1].starts_with("4 steps")) << all[1];
  EXPECT_TRUE(all[2].starts_with("5 operations")) << all[2];
  EXPECT_TRUE(all[3].starts_with("6 events")) << all[3];
  EXPECT_TRUE(warnings_of(known_summary()).empty());
}

// Names come from a file that anyone may have written.
TEST(TraceReport, ShowsNoControlCharacters) {
  TraceSummary summary = known_summary();
  summary.header.model = "\x1b[31mred\n日本";
  for (const char c : to_text(summary)) EXPECT_TRUE(c == '\n' || (c >= 0x20 && c < 0x7f)) << static_cast<int>(c);
}

}  // namespace
}  // namespace quire
