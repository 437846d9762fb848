// A drafter that fails ends no answer: the answers go on without it, and are the same.

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/engine_loop.h"
#include "paths.h"
#include "unit/engine/loop_answers.h"
#include "unit/engine/seeded_request.h"
#include "unit/engine/tiny_engine.h"

namespace quire {
namespace {

using testing::Answer;
using testing::expect_same;
using testing::loop_answers;
using testing::random_tokens;

// Passes each call on, and then may fail.
class FailingDrafter : public DraftModel {
 public:
  FailingDrafter(std::unique_ptr<DraftModel> real, std::function<void(int call)> fail)
      : real_(std::move(real)), fail_(std::move(fail)) {}
  DrafterKind kind() const override { return real_->kind(); }
  bool sequential() const override { return real_->sequential(); }
  std::unique_ptr<DraftNetwork> make_network(const DraftTarget&) override {
    return nullptr;
  }  // the real one has made it
  void start(DraftNetwork& passes, const CacheLayout& layout, const DecoderLimits& limits) override {
    real_->start(passes, layout, limits);
  }
  void draft(std::span<const DraftTask> tasks, uint64_t step, DraftPicker& picker) override {
    real_->draft(tasks, step, picker);
    bool any = false;
    for (const DraftTask& task : tasks) any |= task.depth > 0;
    if (any) fail_(calls_++);
  }
  int calls() const { return calls_; }  // for drafts

 private:
  std::unique_ptr<DraftModel> real_;
  std::function<void(int)> fail_;
  int calls_ = 0;
};

class DrafterErrors : public ::testing::Test {
 protected:
  DrafterErrors() {
    options_.model = options_.draft_model = (golden_dir() / "models/llama").string();
    options_.speculative = Speculation::kDraft;
    options_.threads = 1;
    options_.max_num_seqs = 4;
    options_.max_model_len = 128;
    options_.speculate_always = true;
    options_.num_speculative_tokens = 3;
  }

  static std::vector<Request> requests(unsigned seed) {
    std::vector<Request> all;
    for (unsigned i = 0; i < 3; ++i) {
      all.push_back(seeded_request(random_tokens(10 * seed + i, 20), 40));
      if (i == 0) all.back().sampling.temperature = 0;
    }
    return all;
  }

  std::vector<Answer> without(const std::vector<Request>& all) const {
    EngineOptions o = options_;
    o.speculative = Speculation::kOff;
    LoadedModel model(o);
    EngineLoop loop(model);
    return loop_answers(loop, model, all);
  }
  static DrafterStats stats(const EngineLoop& loop) {
    EngineStats all;
    loop.write_stats(all);
    return all.drafters.back();
  }
  static FailingDrafter& make_fail(LoadedModel& model, std::function<void(int)> fail) {
    auto failing = std::make_unique<FailingDrafter>(std::move(model.draft_model), std::move(fail));
    FailingDrafter& drafter = *failing;
    model.draft_model = std::move(failing);
    return drafter;
  }

  EngineOptions options_;
};

TEST_F(DrafterErrors, ChangeNoAnswer) {
  const std::function<void()> errors[] = {[] { throw invalid("a made-up error"); }, [] { throw std::bad_alloc(); },
                                          [] { throw std::runtime_error("another"); }};
  const auto all = requests(1);
  const auto expected = without(all);
  for (const auto& error : errors) {
    LoadedModel model(options_);
    FailingDrafter& drafter = make_fail(model, [&](int call) {
      if (call == 3) error();
    });
    EngineLoop loop(model);
    const auto answers = loop_answers(loop, model, all);
    for (size_t i = 0; i < all.size(); ++i) expect_same(expected[i], answers[i], "request " + std::to_string(i));
    EXPECT_EQ(stats(loop).errors, 1u);
    EXPECT_EQ(drafter.calls(), 4) << "these sequences draft no more";
    EXPECT_GT(stats(loop).drafted[0], 0u) << "those before the error";
  }
}

TEST_F(DrafterErrors, EndDraftingForTheirSequencesAndAfterSomeForAll) {
  LoadedModel model(options_);
  FailingDrafter& drafter = make_fail(model, [](int) { throw std::bad_alloc(); });
  EngineLoop loop(model);
  for (unsigned i = 0; i < DraftStage::kMostErrors + 2; ++i) {
    const auto all = requests(i);
    for (const Answer& answer : loop_answers(loop, model, all)) EXPECT_EQ(answer.last.finish, FinishReason::kLength);
    EXPECT_EQ(stats(loop).errors, std::min<uint64_t>(i + 1, DraftStage::kMostErrors));
    EXPECT_EQ(drafter.calls(), static_cast<int>(stats(loop).errors));
  }
  EXPECT_EQ(stats(loop).drafted[0], 0u);
}

// The other drafters go on.
TEST_F(DrafterErrors, OfTheModelLeaveTheTextDrafters) {
  options_.speculative = Speculation::kAuto;
  LoadedModel model(options_);
  make_fail(model, [](int) { throw std::bad_alloc(); });
  EngineLoop loop(model);
  std::vector<Request> all;
  for (unsigned i = 0; i < 3; ++i) {
    TokenIds prompt = random_tokens(i, 8);
    for (int copies = 0; copies < 3; ++copies) prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 8);
    all.push_back(seeded_request(prompt, 60));
    all.back().sampling.temperature = 0;
  }
  const auto expected = without(all), answers = loop_answers(loop, model, all);
  for (size_t i = 0; i < all.size(); ++i) expect_same(expected[i], answers[i]);
  EngineStats s;
  loop.write_stats(s);
  EXPECT_EQ(s.drafters.back().errors, 1u);
  EXPECT_GT(s.drafters.front().drafted[0], 0u);
  EXPECT_EQ(s.drafters.front().name, "ngram");
}

}  // namespace
}  // namespace quire
