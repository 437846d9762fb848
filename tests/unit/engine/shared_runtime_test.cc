// Several engines on one runtime: one team, one budget, one tuning.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/runtime.h"
#include "error_of.h"
#include "kernels/kernels.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answers;
using testing::answers_together;
using testing::expect_same;
using testing::random_tokens;
using testing::tiny_model;

constexpr size_t kBudget = 512 * kMiB;

EngineOptions runtime_options() {
  EngineOptions o;
  o.threads = 2;
  o.memory_bytes = kBudget;
  return o;
}
EngineOptions engine_options(const std::string& model) {
  EngineOptions o;
  o.model = model;
  o.max_num_seqs = 8;
  return o;
}
std::vector<Request> six_requests(unsigned seed) {
  std::vector<Request> all;
  for (unsigned i = 0; i < 6; ++i) all.push_back(seeded_request(random_tokens(100 * seed + i, 40), 60));
  return all;
}
std::vector<Answers> alone(EngineOptions o, unsigned seed) {
  o.threads = 2;
  Engine engine(o);
  return answers_together(engine, six_requests(seed));
}

TEST(SharedRuntime, GivesEachEngineTheAnswersOfAnEngineOfItsOwn) {
  const auto runtime = make_runtime(runtime_options());
  const std::string models[] = {tiny_model(TensorType::Q4_1), tiny_model(TensorType::Q8_0, 512, 64)};
  Engine first(engine_options(models[0]), runtime), second(engine_options(models[1]), runtime);
  Engine* const engines[] = {&first, &second};
  std::vector<Answers> together[2];
  std::vector<std::thread> clients;
  for (unsigned i = 0; i < 2; ++i)
    clients.emplace_back([&, i] { together[i] = answers_together(*engines[i], six_requests(i)); });
  for (std::thread& client : clients) client.join();
  for (unsigned i = 0; i < 2; ++i) {
    const auto expected = alone(engine_options(models[i]), i);
    for (size_t r = 0; r < expected.size(); ++r)
      expect_same(expected[r][0], together[i][r][0], models[i] + ", request " + std::to_string(r));
  }
  EXPECT_EQ(first.info().threads, 2);
}

TEST(SharedRuntime, LoadsAModelWhileAnotherAnswers) {
  const auto runtime = make_runtime(runtime_options());
  Engine first(engine_options(tiny_model()), runtime);
  std::atomic<bool> loaded{false};
  std::thread loading([&] {
    for (int i = 0; i < 4; ++i) Engine(engine_options(tiny_model(TensorType::Q8_0)), runtime);
    loaded = true;
  });
  std::vector<Answers> found;
  do {
    found = answers_together(first, six_requests(7));
  } while (!loaded);
  loading.join();
  const auto expected = alone(engine_options(tiny_model()), 7);
  for (size_t r = 0; r < expected.size(); ++r) expect_same(expected[r][0], found[r][0]);
}

TEST(SharedRuntime, DividesItsMemory) {
  const auto runtime = make_runtime(runtime_options());
  EXPECT_EQ(runtime->memory.left(), kBudget);
  EngineOptions o = engine_options(tiny_model());
  auto first = std::make_unique<Engine>(o, runtime);
  const size_t taken = kBudget - runtime->memory.left();
  EXPECT_EQ(taken, first->memory_plan().total());
  o.reserved_bytes = runtime->memory.left();
  const std::string error = error_of([&] { Engine(o, runtime); });
  EXPECT_NE(error.find("MiB of memory are available, but " + o.model + " needs at least"), std::string::npos) << error;
  EXPECT_EQ(kBudget - runtime->memory.left(), taken) << "a refused engine takes nothing";
  first.reset();
  EXPECT_EQ(runtime->memory.left(), kBudget);
  EXPECT_LE(Engine(o, runtime).memory_plan().total(), kBudget) << "now there is room";
}

TEST(SharedRuntime, KeepsAnEngineWithinItsPart) {
  const auto runtime = make_runtime(runtime_options());
  EngineOptions o = engine_options(tiny_model());
  o.memory_bytes = 100 * kMiB;
  const Engine engine(o, runtime);
  EXPECT_LE(engine.memory_plan().total(), 100 * kMiB);
  EXPECT_EQ(engine.info().memory_bytes, 100 * kMiB);
  EXPECT_GE(runtime->memory.left(), kBudget - 100 * kMiB);
}

TEST(SharedRuntime, RefusesOptionsThatItDoesNotHave) {
  const auto runtime = make_runtime(runtime_options());
  EngineOptions o = engine_options(tiny_model());
  o.threads = 3;
  EXPECT_EQ(error_of([&] { Engine(o, runtime); }), "threads is 3, but the shared runtime has 2; leave it 0");
  o.threads = 2;
  o.kernels = runtime->cpu.name() == std::string("reference") ? "avx2" : "reference";
  EXPECT_NE(error_of([&] { Engine(o, runtime); }).find("but the shared runtime has"), std::string::npos);
}

TEST(SharedRuntime, OutlivesTheCallersHandle) {
  auto runtime = make_runtime(runtime_options());
  Engine engine(engine_options(tiny_model()), std::move(runtime));
  EXPECT_EQ(answers_together(engine, six_requests(1)).size(), 6u);
}

}  // namespace
}  // namespace quire
