// What a failed step has called of its device's operations never runs: not in the next step, nor in that of another sequence.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine_loop.h"
#include "ops/forwarding.h"
#include "unit/engine/drafters.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::expect_same;
using testing::golden;
using testing::loop_answers;
using testing::random_tokens;

// The CPU's operations, of which one fails.
class FailingBackend final : public ForwardingBackend {
 public:
  explicit FailingBackend(Backend& inner) : ForwardingBackend(inner) {}
  std::unique_ptr<Operations> operations(Activations activations, const OperationLimits& limits) override;

  int calls_to_fail = -1;  // preparations of inputs before the one that fails; below 0: none does
  int failures = 0, discards = 0;
  int runs_of_the_rest = 0;  // of operations called before a failure
};

class FailingOperations final : public ForwardingOperations {
 public:
  FailingOperations(FailingBackend& backend, std::unique_ptr<Operations> inner)
      : ForwardingOperations(std::move(inner)), backend_(backend) {}

  using Operations::project;

  void finish() override {
    backend_.runs_of_the_rest += failed_;
    ForwardingOperations::finish();
  }
  void discard() noexcept override {
    backend_.discards += failed_;
    failed_ = false;
    ForwardingOperations::discard();
  }
  Inputs prepare(const Rows& x, const NormView& norm, int rows, std::initializer_list<const Linear*> linears,
                 std::optional<Activations> as) override {
    if (backend_.calls_to_fail-- == 0) {
      failed_ = true;
      ++backend_.failures;
      throw no_resource("a made-up error");
    }
    return ForwardingOperations::prepare(x, norm, rows, linears, as);
  }

 private:
  FailingBackend& backend_;
  bool failed_ = false;
};

std::unique_ptr<Operations> FailingBackend::operations(Activations activations, const OperationLimits& limits) {
  return std::make_unique<FailingOperations>(*this, inner().operations(activations, limits));
}

class FailedSteps : public ::testing::TestWithParam<testing::Choice> {};

// The model's own steps and those of each network that drafts, whichever of the first operations fails.
TEST_P(FailedSteps, LeaveNothingToRun) {
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);  // it warns each time
  EngineOptions o = testing::undrafted_options(4, 128);
  o.threads = 1;
  o.speculate_always = true;
  GetParam().change(o);
  const std::vector<Request> requests = {seeded_request(random_tokens(1, 20), 12)};
  bool fails = true;
  int call = 0;
  for (; fails; ++call) {
    const auto runtime = std::make_shared<Runtime>(o);
    runtime->device = std::make_unique<FailingBackend>(runtime->cpu);
    auto& backend = static_cast<FailingBackend&>(*runtime->device);
    LoadedModel model(o, 0, runtime);  // a new one: drafters that fail often draft no more
    EngineLoop loop(model);
    const Answer expected = loop_answers(loop, model, requests)[0];
    backend.calls_to_fail = call;
    loop_answers(loop, model, requests);
    fails = backend.failures > 0;
    backend.calls_to_fail = -1;
    ASSERT_EQ(backend.discards, backend.failures) << call;
    expect_same(expected, loop_answers(loop, model, requests)[0], std::to_string(call));
    ASSERT_EQ(backend.runs_of_the_rest, 0) << call;
    if (call == 60) break;
  }
  EXPECT_GT(call, 20);
  spdlog::set_level(level);
}
INSTANTIATE_TEST_SUITE_P(Drafters, FailedSteps,
                         ::testing::Values(testing::Choice{"none", [](EngineOptions&) {}},
                                           testing::Choice{"draft",
                                                           [](EngineOptions& o) {
                                                             o.speculative = Speculation::kDraft;
                                                             o.draft_model = o.model;
                                                           }},
                                           testing::Choice{
                                               "mtp", [](EngineOptions& o) { testing::use_mtp(o, "deepseek_v3"); }},
                                           testing::Choice{"medusa",
                                                           [](EngineOptions& o) {
                                                             o.speculative = Speculation::kMedusa;
                                                             o.medusa_heads = golden("drafters/medusa");
                                                           }}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quire
