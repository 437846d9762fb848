// What the experiments of `quire lab` count: slots of a batch, slots of a cache, products of attention, and claims.
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "cli/lab/batch_slots.h"
#include "cli/lab/cache_allocation.h"
#include "cli/lab/experiment.h"
#include "cli/lab/page.h"
#include "cli/lab/stepped_run.h"
#include "kernels/types.h"

namespace quire {
namespace {

TEST(BatchSlots, StaticBatchesTakeAsLongAsTheirLongestAnswer) {
  const std::vector<int> lengths{3, 10, 1, 2, 5};
  EXPECT_EQ(static_steps(lengths, 2).steps, 10 + 2 + 5);
  EXPECT_EQ(static_steps(lengths, 2).used, 21);
  EXPECT_EQ(static_steps(lengths, 1).steps, 21);
  EXPECT_EQ(static_steps(lengths, 8).steps, 10);
}

TEST(BatchSlots, ContinuousBatchesFillTheSlotThatIsFreeFirst) {
  const std::vector<int> lengths{3, 10, 1, 2, 5};
  // Slot 0: 3, 1, 2, 5; slot 1: 10.
  EXPECT_EQ(continuous_steps(lengths, 2).steps, 11);
  EXPECT_EQ(continuous_steps(lengths, 2).used, 21);
  EXPECT_EQ(continuous_steps(lengths, 1).steps, 21);
}

SteppedRun run_of(const std::vector<std::vector<uint64_t>>& steps) {
  SteppedRun run;
  for (const auto& sequences : steps) {
    SteppedRun::Step& step = run.steps.emplace_back();
    for (const uint64_t sequence : sequences) step.parts.push_back({.sequence = sequence, .rows = 1});
  }
  return run;
}

TEST(BatchSlots, ASequenceKeepsTheLowestFreeSlot) {
  const SteppedRun run = run_of({{7, 8}, {7, 8}, {8, 9}, {9, 10}});
  EXPECT_EQ(count_slots(run).steps, 4);
  EXPECT_EQ(count_slots(run).used, 8);
  const std::vector<SlotUse> uses = occupy_slots(run);
  ASSERT_EQ(uses.size(), 4u);
  const auto is = [&](size_t i, int slot, int begin, int end) {
    return uses[i].slot == slot && uses[i].begin == begin && uses[i].end == end && uses[i].user == i;
  };
  EXPECT_TRUE(is(0, 0, 0, 2));
  EXPECT_TRUE(is(1, 1, 0, 3));
  EXPECT_TRUE(is(2, 0, 2, 4));
  EXPECT_TRUE(is(3, 1, 3, 4));
}

TEST(AttentionProducts, AreThoseOfACausalTriangle) {
  EXPECT_EQ(attention_products(0, 1), 1);
  EXPECT_EQ(attention_products(0, 4), 10);
  EXPECT_EQ(attention_products(4, 1), 5);
  EXPECT_EQ(attention_products(0, 100), attention_products(0, 37) + attention_products(37, 63));
}

constexpr int kLongest = 128, kPool = 4 * kLongest;

TEST(CacheAllocation, CountsASequenceByItself) {
  const std::vector<SequenceLength> one{{20, 30}};  // holds 20 to 49 tokens
  const double used = 30 * 20 + 29 * 30 / 2;
  const PoolRun contiguous = run_pool(CacheAllocation::kContiguous, one, kLongest, kPool);
  EXPECT_EQ(contiguous.steps, 30);
  EXPECT_EQ(contiguous.running, 1);
  EXPECT_EQ(contiguous.use.used, used);
  EXPECT_EQ(contiguous.use.reserved, 30 * kLongest);
  EXPECT_DOUBLE_EQ(contiguous.use.waste(), 1 - used / (30 * kLongest));

  const PoolRun paged = run_pool(CacheAllocation::kPaged, one, kLongest, kPool);
  EXPECT_EQ(paged.use.used, used);
  double pages = 0;
  for (int tokens = 20; tokens < 50; ++tokens) pages += (tokens + kPageTokens - 1) / kPageTokens;
  EXPECT_EQ(paged.use.reserved, kPageTokens * pages);

  const PoolRun doubling = run_pool(CacheAllocation::kDoubling, one, kLongest, kPool);
  EXPECT_EQ(doubling.use.reserved, 13 * 32 + 17 * 64);  // 20 to 32 tokens, and 33 to 49
  EXPECT_EQ(doubling.copied, 32);
}

TEST(CacheAllocation, ReservesForSoManyOfTheLongest) {
  const std::vector<SequenceLength> many(40, {10, 20});
  const PoolRun contiguous = run_pool(CacheAllocation::kContiguous, many, kLongest, kPool);
  EXPECT_EQ(contiguous.running, 4);
  EXPECT_EQ(contiguous.steps, 10 * 20);
  EXPECT_EQ(contiguous.preemptions, 0);
  const PoolRun paged = run_pool(CacheAllocation::kPaged, many, kLongest, kPool);
  EXPECT_GT(paged.running, 2 * contiguous.running);
  EXPECT_LT(paged.steps, contiguous.steps / 2);
}

TEST(CacheAllocation, PreemptsWhenThePoolIsFullAndStillEndsAll) {
  // Each prompt fits beside the others at first; together their answers do not.
  const std::vector<SequenceLength> many(30, {16, 100});
  for (const auto allocation : {CacheAllocation::kPaged, CacheAllocation::kDoubling}) {
    const PoolRun run = run_pool(allocation, many, kLongest, kPool);
    EXPECT_GT(run.preemptions, 0);
    EXPECT_GT(run.recomputed, 0);
    EXPECT_LE(run.use.used, run.use.reserved);
    EXPECT_LE(run.use.reserved, static_cast<double>(run.steps) * kPool);
    EXPECT_GE(run.use.used, 30.0 * (100 * 16 + 99 * 100 / 2));
  }
}

TEST(Claims, HoldWithinTheirFactors) {
  const auto held = [](double value, Claim claim, double foretold, double factor) {
    return holds({.what = "x", .value = value, .claim = claim, .foretold = foretold, .factor = factor});
  };
  EXPECT_FALSE(held(1, Claim::kNone, 1, 1).has_value());
  EXPECT_TRUE(held(5, Claim::kEqual, 5, 1).value());
  EXPECT_FALSE(held(5.001, Claim::kEqual, 5, 1).value());
  EXPECT_TRUE(held(14, Claim::kAbout, 10, 1.5).value());
  EXPECT_TRUE(held(7, Claim::kAbout, 10, 1.5).value());
  EXPECT_FALSE(held(16, Claim::kAbout, 10, 1.5).value());
  EXPECT_FALSE(held(6, Claim::kAbout, 10, 1.5).value());
  EXPECT_TRUE(held(10.9, Claim::kAtMost, 10, 1.1).value());
  EXPECT_FALSE(held(11.1, Claim::kAtMost, 10, 1.1).value());
  EXPECT_TRUE(held(9.2, Claim::kAtLeast, 10, 1.1).value());
  EXPECT_FALSE(held(9, Claim::kAtLeast, 10, 1.1).value());
}

TEST(LabNumbers, AreShownForPeople) {
  EXPECT_EQ(lab_number_text(0), "0");
  EXPECT_EQ(lab_number_text(-1234567), "-1,234,567");
  EXPECT_EQ(lab_number_text(999), "999");
  EXPECT_EQ(lab_number_text(3.14159), "3.14");
  EXPECT_EQ(lab_number_text(1234.4), "1,234");
  EXPECT_EQ(lab_number_text(0.000123), "0.000123");
  EXPECT_EQ(times_text(2.714), "2.7 times");
  EXPECT_EQ(times_text(1234.4), "1,234 times");
}

const LabMachine kTestMachine{
    .processor = "a|b", .kernels = "avx2", .model = "m", .version = "1", .date = "2026-11-26", .threads = 2};

LabResult small_result() {
  return {
      .summary = "It is 3 times as fast.",
      .setup = {"A setup."},
      .commands = {"quire run --no-kv-cache"},
      .numbers = {{.what = "rows", .unit = "rows", .value = 3, .claim = Claim::kEqual, .foretold = 4, .theory = "n"}},
      .figures = {{"a figure", "<svg/>"}}};
}

TEST(LabPage, SaysWhetherTheoryHolds) {
  const std::string page = experiment_page(kKvCacheExperiment, small_result(), kTestMachine);
  EXPECT_NE(page.find("| rows | 3 rows | counted | 4 rows | **no** | n |"), page.npos);
  EXPECT_NE(page.find("![a figure](kv-cache.svg)"), page.npos);
  EXPECT_NE(page.find("quire run --no-kv-cache\n"), page.npos);
  EXPECT_NE(page.find("a\\|b, 2 threads"), page.npos);
  LabResult two = small_result();
  two.figures.push_back({"another", "<svg/>"});
  EXPECT_EQ(figure_files(kKvCacheExperiment, two), (std::vector<std::string>{"kv-cache-1.svg", "kv-cache-2.svg"}));
}

TEST(LabIndex, KeepsRowsOfExperimentsThatDidNotRun) {
  const std::string first = lab_index({{&kPagingExperiment, "old paging"}, {&kWindowExperiment, "old window"}}, "");
  EXPECT_TRUE(is_lab_index(first));
  EXPECT_FALSE(is_lab_index("# My project\n"));
  const std::string second = lab_index({{&kPagingExperiment, "new paging"}}, first);
  EXPECT_EQ(second.find("old paging"), second.npos);
  EXPECT_NE(second.find("| [Paging](paging.md) | new paging |\n"), second.npos);
  EXPECT_NE(second.find("(window.md) | old window |\n"), second.npos);
}

TEST(Experiments, HaveNamesOfTheirOwnAndWords) {
  std::map<std::string_view, int> names;
  for (const Experiment* e : experiments()) {
    ++names[e->name];
    EXPECT_FALSE(e->title.empty());
    EXPECT_TRUE(e->question.ends_with("?")) << e->name;
    EXPECT_TRUE(e->technique.ends_with(".")) << e->name;
    EXPECT_NE(e->run, nullptr);
  }
  EXPECT_EQ(names.size(), experiments().size());
}

}  // namespace
}  // namespace quire
