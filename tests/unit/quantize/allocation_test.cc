// Types by a budget: the knapsack, the choices it gets, and plans in files.
#include "quantize/allocation/allocation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/files/mapped_file.h"
#include "error_of.h"
#include "quantize/allocation/allocation_file.h"
#include "quantize/allocation/knapsack.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

using Lists = std::vector<std::vector<KnapsackItem>>;

struct Total {
  uint64_t cost = 0;
  double loss = 0;
};

Total total_of(const Lists& lists, const std::vector<size_t>& chosen) {
  Total total;
  for (size_t i = 0; i < lists.size(); ++i) {
    total.cost += lists[i].at(chosen.at(i)).cost;
    total.loss += lists[i][chosen[i]].loss;
  }
  return total;
}

// The least loss within the budget of all combinations; negative: none is within it.
double least_loss(const Lists& lists, uint64_t budget) {
  double best = -1;
  std::vector<size_t> chosen(lists.size());
  while (true) {
    const Total total = total_of(lists, chosen);
    if (total.cost <= budget && (best < 0 || total.loss < best)) best = total.loss;
    size_t i = 0;
    while (i < lists.size() && ++chosen[i] == lists[i].size()) chosen[i++] = 0;
    if (i == lists.size()) return best;
  }
}

Lists random_lists(std::mt19937& random, size_t count, size_t most_items, uint64_t most_cost) {
  Lists lists(count);
  for (auto& list : lists) {
    const size_t items = 1 + random() % most_items;
    for (size_t i = 0; i < items; ++i) list.push_back({random() % most_cost, static_cast<double>(random() % 1000) / 8});
  }
  return lists;
}

TEST(Knapsack, FindsTheLeastLossOfAllCombinations) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const Lists lists = random_lists(random, 1 + seed % 6, 5, 100);
    const uint64_t budget = random() % 400;
    const double best = least_loss(lists, budget);
    const auto chosen = choose_within(lists, budget);
    ASSERT_EQ(chosen.has_value(), best >= 0) << "seed " << seed;
    if (!chosen) continue;
    EXPECT_LE(total_of(lists, *chosen).cost, budget) << "seed " << seed;
    EXPECT_DOUBLE_EQ(total_of(lists, *chosen).loss, best) << "seed " << seed;
  }
}

TEST(Knapsack, StaysWithinBudgetsOfManyUnitsAndIsNearlyBest) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    std::mt19937 random(seed);
    const Lists lists = random_lists(random, 6, 5, 1'000'000'007);
    const uint64_t budget = 2'000'000'000 + random() % 1'000'000'000;
    const auto chosen = choose_within(lists, budget);
    const double best = least_loss(lists, budget);
    ASSERT_EQ(chosen.has_value(), best >= 0) << "seed " << seed;
    if (!chosen) continue;
    EXPECT_LE(total_of(lists, *chosen).cost, budget) << "seed " << seed;
    EXPECT_LE(total_of(lists, *chosen).loss, least_loss(lists, budget - budget / 1000)) << "seed " << seed;
  }
}

TEST(Knapsack, HasNoChoiceBelowTheCheapestItemsAndOneAtThem) {
  const Lists lists{{{10, 5}, {7, 9}}, {{4, 1}}};
  EXPECT_FALSE(choose_within(lists, 10));
  EXPECT_EQ(choose_within(lists, 11), (std::vector<size_t>{1, 0}));
  EXPECT_EQ(choose_within(lists, 14), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(choose_within(Lists{}, 0), std::vector<size_t>{});
}

GroupAllocation some_group() {
  return {.name = "blk.0 ffn_down",
          .tensors = {"blk.0.ffn_down.weight"},
          .elements = 1024,
          .choices = {{.type = TensorType::Q2_K, .bytes = 336, .error = 64},
                      {.type = TensorType::Q4_K, .bytes = 576, .error = 8},
                      {.type = TensorType::Q5_K, .bytes = 704, .error = 2},
                      {.type = TensorType::Q8_0, .bytes = 1088, .error = 0}}};
}

TEST(Choices, AreThoseThatLoseLessThanAllSmallerOnes) {
  std::vector<TypeChoice> choices{{.type = TensorType::Q5_0, .bytes = 704, .error = 3},
                                  {.type = TensorType::Q5_K, .bytes = 704, .error = 2},
                                  {.type = TensorType::Q4_K, .bytes = 576, .error = 8},
                                  {.type = TensorType::Q4_0, .bytes = 580, .error = 9},
                                  {.type = TensorType::Q8_0, .bytes = 1088, .error = 2}};
  remove_worse(choices);
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].type, TensorType::Q4_K);
  EXPECT_EQ(choices[1].type, TensorType::Q5_K);
}

TEST(Choices, AreMeasuredOnBothSidesOfTheTarget) {
  const GroupAllocation group = some_group();
  EXPECT_EQ(choices_to_measure(group, 1), (std::vector<size_t>{0, 1}));    // all are larger
  EXPECT_EQ(choices_to_measure(group, 4.4), (std::vector<size_t>{0, 1}));  // 2.625 and 4.5 bits
  EXPECT_EQ(choices_to_measure(group, 4.5), (std::vector<size_t>{1, 2}));
  EXPECT_EQ(choices_to_measure(group, 30), (std::vector<size_t>{1, 2}));  // what loses nothing is not measured
}

TEST(Choices, AreScaledFromTheMeasuredOneThatIsNearest) {
  GroupAllocation group = some_group();
  group.choices[0].measured = group.choices[1].measured = true;
  group.choices[0].divergence = 0.5;
  group.choices[1].divergence = 0.1;
  group.choices[3].divergence = 7;  // of an earlier plan
  scale_divergences(group);
  EXPECT_DOUBLE_EQ(group.choices[0].divergence, 0.5);
  EXPECT_DOUBLE_EQ(group.choices[1].divergence, 0.1);
  EXPECT_DOUBLE_EQ(group.choices[2].divergence, 0.1 * 2 / 8);
  EXPECT_EQ(group.choices[3].divergence, 0);
}

// Two groups of the same sizes, the second ten times as sensitive, and 100 bytes of norms.
Allocation some_allocation() {
  Allocation allocation{.groups = {some_group(), some_group()}, .elements = 2100, .other_bytes = 100};
  allocation.groups[1].name = "blk.1 ffn_down";
  allocation.groups[1].tensors = {"blk.1.ffn_down.weight"};
  for (size_t g = 0; g < 2; ++g) {
    for (TypeChoice& choice : allocation.groups[g].choices) choice.divergence = choice.error * (g == 0 ? 0.001 : 0.01);
  }
  allocation.text = "text \"quoted\".txt", allocation.chunks = 4, allocation.context = 256;
  return allocation;
}

TEST(Allocations, SpendBitsWhereTheySaveMost) {
  Allocation allocation = some_allocation();
  const auto types_at = [&](uint64_t bytes) {
    allocate_bits(allocation, 8.0 * static_cast<double>(bytes) / 2100 + 1e-9);
    EXPECT_LE(allocation.bytes(), bytes);
    return std::pair(allocation.groups[0].choice().type, allocation.groups[1].choice().type);
  };
  using T = TensorType;
  EXPECT_EQ(types_at(772), std::pair(T::Q2_K, T::Q2_K));
  EXPECT_EQ(types_at(100 + 336 + 576), std::pair(T::Q2_K, T::Q4_K));
  EXPECT_EQ(types_at(100 + 576 + 704), std::pair(T::Q4_K, T::Q5_K));
  EXPECT_EQ(types_at(100 + 1088 + 1088), std::pair(T::Q8_0, T::Q8_0));
  EXPECT_DOUBLE_EQ(allocation.divergence(), 0);
  EXPECT_EQ(allocation.types().at("blk.1.ffn_down.weight"), T::Q8_0);
  EXPECT_EQ(error_of([&] { allocate_bits(allocation, 2.5); }),
            "--target-bpw 2.5 is too low: the smallest types of all matrices take 2.9410 bits a weight");
  EXPECT_EQ(error_of([&] { allocate_bits(allocation, 0); }),
            "--target-bpw 0 is too low: the smallest types of all matrices take 2.9410 bits a weight");
}

class AllocationFiles : public ::testing::Test {
 protected:
  AllocationFiles() { fs::create_directory(folder_); }
  ~AllocationFiles() override { fs::remove_all(folder_); }

  std::string refusal(const std::string& text) const {
    std::ofstream(folder_ / "x.json", std::ios::binary) << text;
    return error_of([&] { read_allocation(folder_ / "x.json"); });
  }

  const fs::path folder_ = fs::temp_directory_path() / ("quire-allocation-" + std::to_string(::getpid()));
};

TEST_F(AllocationFiles, KeepEverything) {
  Allocation before = some_allocation();
  allocate_bits(before, 5);
  write_allocation(before, folder_ / "plan.json");
  const Allocation after = read_allocation(folder_ / "plan.json");
  EXPECT_EQ(after.types(), before.types());
  EXPECT_EQ(after.elements, before.elements);
  EXPECT_EQ(after.bytes(), before.bytes());
  EXPECT_EQ(after.divergence(), before.divergence());
  EXPECT_EQ(after.text, before.text);
  EXPECT_EQ(after.context, 256);
  EXPECT_TRUE(has_choices(after));
  ASSERT_EQ(after.groups.size(), 2u);
  EXPECT_EQ(after.groups[1].name, "blk.1 ffn_down");
  EXPECT_EQ(after.groups[1].choices[2].error, 2);
  write_allocation(after, folder_ / "again.json");
  EXPECT_EQ(read_text_file(folder_ / "again.json"), read_text_file(folder_ / "plan.json"));
}

TEST_F(AllocationFiles, NeedOnlyTensorsAndTypes) {
  std::ofstream(folder_ / "plan.json")
      << R"({"format": "quire-types-of-tensors", "version": 1, "groups": [{"tensors": ["a", "b"], "type": "Q4_K"}]})";
  const Allocation plan = read_allocation(folder_ / "plan.json");
  EXPECT_EQ(plan.types().at("b"), TensorType::Q4_K);
  EXPECT_FALSE(has_choices(plan));
}

TEST_F(AllocationFiles, ThatCannotBeWrittenAreNamed) {
  EXPECT_NE(error_of([&] {
              write_allocation(some_allocation(), folder_ / "none" / "plan.json");
            }).find("none/plan.json.tmp cannot be written: No such file or directory"),
            std::string::npos);
}

struct BadPlan {
  const char* text;
  const char* message;
};
constexpr const char* kHead = R"({"format": "quire-types-of-tensors", "version": 1, "groups": )";
// Texts that begin with [ are groups.
constexpr BadPlan kBadPlans[] = {
    {"", "x.json"},
    {"{", "x.json"},
    {"null", "expected an object"},
    {"{}", "is not a plan of types"},
    {R"({"format": "gguf", "version": 1, "groups": []})", "is not a plan of types"},
    {R"({"format": 3})", "format: expected a string"},
    {R"({"format": "quire-types-of-tensors", "groups": []})", "version is missing"},
    {R"({"format": "quire-types-of-tensors", "version": 2, "groups": []})", "version: expected"},
    {R"({"format": "quire-types-of-tensors", "version": 1})", "groups is missing"},
    {R"({"format": "quire-types-of-tensors", "version": 1, "groups": {}})", "groups: expected an array"},
    {R"({"format": "quire-types-of-tensors", "version": 1, "elements": -1, "groups": []})", "elements: expected"},
    {R"({"format": "quire-types-of-tensors", "version": 1, "chunks": 1.5, "groups": []})", "chunks: expected"},
    {"[]", "groups: must not be empty"},
    {"[3]", "groups[0]"},
    {R"([{"type": "Q4_K"}])", "tensors is missing"},
    {R"([{"tensors": [], "type": "Q4_K"}])", "groups[0].tensors: must not be empty"},
    {R"([{"tensors": "a", "type": "Q4_K"}])", "tensors: expected an array"},
    {R"([{"tensors": [1], "type": "Q4_K"}])", "tensors[0]: expected a string"},
    {R"([{"tensors": ["a", "a"], "type": "Q4_K"}])", R"("a" is named twice)"},
    {R"([{"tensors": ["a"], "type": "Q4_K"}, {"tensors": ["a"], "type": "Q8_0"}])", R"("a" is named twice)"},
    {R"([{"tensors": ["a"]}])", "type is missing"},
    {R"([{"tensors": ["a"], "type": "Q9_K"}])", R"("Q9_K" is not a type of GGUF files)"},
    {R"([{"tensors": ["a"], "type": "F8_E4M3"}])", "is not a type of GGUF files"},
    {R"([{"tensors": ["a"], "type": 12}])", "type: expected a string"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "elements": 1e300}])", "elements: expected"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": []}])", "Q4_K is not among the choices"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q8_0", "bytes": 1, "error": 0, "divergence": 0}]}])",
     "Q4_K is not among the choices"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q4_K", "error": 0, "divergence": 0}]}])",
     "bytes is missing"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q4_K", "bytes": -3, "error": 0, "divergence": 0}]}])",
     "bytes: expected"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q4_K", "bytes": 3, "error": -1, "divergence": 0}]}])",
     "error: expected"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q4_K", "bytes": 3, "error": 1, "divergence": -0.1}]}])",
     "divergence: expected"},
    {R"([{"tensors": ["a"], "type": "Q4_K", "choices": [{"type": "Q4_K", "bytes": 3, "error": 1, "divergence": 0, "measured": 1}]}])",
     "measured: expected"},
};

TEST_F(AllocationFiles, ThatAreNoPlansAreRefusedAtTheField) {
  for (const BadPlan& bad : kBadPlans) {
    const std::string text = bad.text[0] == '[' ? std::string(kHead) + bad.text + "}" : bad.text;
    EXPECT_NE(refusal(text).find(bad.message), std::string::npos) << text << "\n" << refusal(text);
  }
}

}  // namespace
}  // namespace quire
