// Fails every allocation that a request makes the engine do, one at a time: the request may end with an error, the
// engine continues, and the next answer is right.

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "engine/drafting/draft_stage.h"
#include "engine/fair_queue.h"
#include "sanitizers.h"
#include "unit/engine/tiny_cache.h"
#include "unit/engine/tiny_engine.h"

namespace {

std::atomic<int> allocations_left{-1};  // before one fails; -1: none fails

bool fails() {
  return allocations_left.load(std::memory_order_relaxed) >= 0 &&
         allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0;
}

}  // namespace

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // new and delete are these

void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
}
void* operator new(size_t bytes) {
  void* const memory = ::operator new(bytes, std::nothrow);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quire {
namespace {

TEST(OutOfMemory, EndsAtMostTheRequestThatAllocates) {
  EngineOptions o;
  o.model = testing::tiny_model();
  o.threads = 1;
  o.max_num_seqs = 4;
  Engine engine(o);
  Request request;
  for (int i = 0; i < 40; ++i) request.prompt.push_back(i * 7 % 256);
  request.sampling.max_tokens = 12;
  request.sampling.ignore_eos = true;
  request.sampling.logprobs = 3;
  request.sampling.n = 2;

  const auto answer = [&](int fail_at) {
    TokenIds tokens;
    tokens.reserve(64);
    int ends = 0, errors = 0, missing = 0;
    allocations_left = fail_at;
    try {
      engine.generate(request, [&](const Output& out) {
        if (out.choice == 0 && !out.tokens.empty()) tokens.push_back(out.tokens[0].id);
        for (size_t p = 0; p < out.prompt_logprobs.size(); ++p)
          missing +=
              out.prompt_logprobs[p].id != request.prompt[p] || out.prompt_logprobs[p].top_logprobs.empty() != (p == 0);
        ends += out.finish != FinishReason::kNone;
        errors += out.finish == FinishReason::kError;
      });
      allocations_left = -1;
      EXPECT_EQ(ends, 2);
      EXPECT_EQ(missing, 0);
    } catch (const std::bad_alloc&) {  // submit itself
      allocations_left = -1;
      ++errors;
    }
    if (fail_at < 0) {
      EXPECT_EQ(errors, 0);
    }
    return std::pair{tokens, errors};
  };
  const TokenIds right = answer(-1).first;
  int failed = 0;
  for (int i = 0; i < 400; ++i) {
    request.prompt[0] = i % 256;  // the prefix cache does not always have it
    request.sampling.prompt_logprobs = i % 2 ? std::optional(1) : std::nullopt;
    const int errors = answer(i).second;
    failed += errors > 0;
    ASSERT_LE(errors, 2);
  }
  EXPECT_GT(failed, 50);
  request.prompt[0] = 0;
  request.sampling.prompt_logprobs.reset();
  EXPECT_EQ(answer(-1).first, right);
}

// A drafter without memory costs its drafts, and no answer.
TEST(OutOfMemory, InADrafterCostsItsDrafts) {
  const auto level = spdlog::get_level();
  spdlog::set_level(spdlog::level::off);  // it warns each time
  EngineOptions o;
  o.speculate_always = true;
  Team team(1);
  TokenIds prompt = testing::random_tokens(1, 12);
  prompt.insert(prompt.end(), prompt.begin(), prompt.begin() + 12);
  const TokenId predicted[] = {1, 2, 3};
  uint64_t errors = 0;
  for (const DrafterKind kind : {DrafterKind::kNgram, DrafterKind::kRecent, DrafterKind::kLookahead}) {
    bool failed = true;
    for (int fail_at = 0; failed; ++fail_at) {
      ASSERT_LT(fail_at, 1000);
      TextDrafters texts({kind}, o, nullptr);
      texts.limit(1000);
      DraftStage stage(o, nullptr, &texts, team, 320);
      auto request = std::make_shared<RequestState>();
      request->prompt_tokens = static_cast<int>(prompt.size());
      request->max_new_tokens = 100;
      Sequences running;
      Sequence& s = running.emplace_back(request, 0, prompt, nullptr);
      s.decodes = true;
      s.tokens.push_back(prompt[0]);
      allocations_left = fail_at;
      EXPECT_NO_THROW({
        stage.remember(s);
        stage.choose(running, testing::kSlow, 16, 512);
        if (!s.drafts.empty()) {
          s.tokens.push_back(predicted[0]);
          stage.learn(s, 2, 0, predicted);
        }
        stage.choose(running, testing::kSlow, 16, 512);
      });
      failed = allocations_left < 0;
      allocations_left = -1;
      EngineStats stats;
      stage.add_stats(stats);
      EXPECT_LE(stats.drafters[0].errors, 1u);
      EXPECT_TRUE(failed || stats.drafters[0].errors == 0);
      errors += stats.drafters[0].errors;
    }
  }
  spdlog::set_level(level);
  EXPECT_GT(errors, 10u);
}

// If a callback throws std::bad_alloc, only its own answer ends.
TEST(OutOfMemory, InACallbackDoesNotEndOtherAnswers) {
  Engine engine(testing::tiny_options());
  Request request;
  request.prompt = testing::random_tokens(1, 20);
  request.sampling.max_tokens = 8;
  request.sampling.ignore_eos = true;
  const TokenIds right = testing::answer(engine, request).tokens;
  Request choices = request, vector = request, cancelled = request;
  choices.sampling.n = 3;
  vector.pooling = Pooling::kMean;
  cancelled.sampling.max_tokens = 400;
  const auto forgets = [](const Output& out) {
    if (out.finish != FinishReason::kNone) throw std::bad_alloc();
  };
  for (int i = 0; i < 3; ++i) {
    engine.submit(choices, forgets);
    engine.submit(vector, forgets);
    engine.cancel(engine.submit(cancelled, forgets));
    const testing::Answer a = testing::answer(engine, request);
    EXPECT_EQ(a.last.finish, FinishReason::kLength);
    EXPECT_EQ(a.tokens, right);
  }
}

// Engine::generate returns even if its callback always throws.
TEST(OutOfMemory, InACallbackEndsGenerate) {
  Engine engine(testing::tiny_options());
  Request request;
  request.prompt = testing::random_tokens(1, 20);
  request.sampling.max_tokens = 3;
  request.sampling.n = 2;
  int calls = 0;
  engine.generate(request, [&](const Output&) {
    ++calls;
    throw std::bad_alloc();
  });
  EXPECT_GE(calls, 4);  // each choice also gets an output with kError
}

// An allocation fails while two prompts are being loaded: one has all its pages, the other requests more.
void fail_a_load(const std::string& folder, int fail_at) {
  testing::TinyCache c(64, 0, folder);
  std::unique_ptr<Sequence> loading[2];
  const auto find = [&](SequenceId id) -> Sequence* {
    for (const auto& s : loading) {
      if (s && s->id == id) return s.get();
    }
    return nullptr;
  };
  for (int i = 0; i < 2; ++i) {
    loading[i] = c.waiting(testing::numbers(1000 * i, 1 + 39 * i));
    c.look_up(*loading[i]);
    ASSERT_EQ(loading[i]->cached.hit.loads, 1 + 39 * i);
    c.cache.adopt(*loading[i]);
    c.loader.start(*loading[i]);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // until the requested pages have been read
  allocations_left = fail_at;
  try {
    c.loader.poll(find);
  } catch (const std::bad_alloc&) {  // the engine would end both sequences
  }
  allocations_left = -1;
  for (auto& s : loading) {
    c.cache.release(*s);
    s.reset();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  c.loader.poll(find);
  EXPECT_EQ(c.cache.shared().available_units(), 64);
}

TEST(OutOfMemory, DuringALoadLosesNoPages) {
  const auto folder = std::filesystem::temp_directory_path() / ("quire-load-" + std::to_string(::getpid()));
  {
    testing::TinyCache c(64, 0, folder.string());
    for (int i = 0; i < 2; ++i) c.run_and_end(testing::numbers(1000 * i, 1 + 39 * i));
  }
  for (int i = 0; i < 6 && !HasFailure(); ++i) fail_a_load(folder.string(), i);
  std::filesystem::remove_all(folder);
}

// A failed enter() leaves no trace of the tenant, and leave() never allocates.
TEST(OutOfMemory, OfATenantLeavesNoTrace) {
  const std::string name = "a tenant whose name is too long to need no memory of its own";
  for (int fail_at = 0; fail_at < 10; ++fail_at) {
    TenantShares shares;
    for (int i = 0; i < 5000; ++i) shares.enter(std::to_string(i));  // more than are remembered after they leave
    allocations_left = fail_at;
    try {
      shares.enter(name);
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      shares.enter(name);
    }
    allocations_left = 0;
    EXPECT_NO_THROW(shares.leave(5000));
    EXPECT_NO_THROW(shares.leave(4999));
    allocations_left = -1;
    EXPECT_NE(shares.enter(name), shares.enter("another"));
  }
}

// Twelve requests, four at a time, with too few pages for four: sequences are admitted, preempted and admitted again.
// Callbacks submit everything on the engine's thread, so that the number of an allocation identifies one place.
class Crowd {
 public:
  Crowd() : ends_(12), engine_(options()) {}

  // Runs with allocation `fail_at` failing. Returns the number of allocations.
  int run(int fail_at) {
    Request first = request(0);
    first.sampling.max_tokens = 1;
    engine_.submit(first, [this, fail_at](const Output&) {
      submit(0, 8);
      allocations_left = fail_at;
    });
    std::unique_lock lock(mutex_);
    // A lost sequence never ends. (Many short waits, so that a process that was stopped for a while does not fail.)
    for (int waits = 0; waits < 200 && left_ > 0; ++waits) done_.wait_for(lock, std::chrono::milliseconds(100));
    EXPECT_EQ(left_, 0);
    const int made = fail_at - allocations_left.exchange(-1);
    for (const int ends : ends_) EXPECT_EQ(ends, 1);
    return made;
  }
  int errors() const { return errors_; }
  uint64_t preemptions() const { return engine_.stats().preemptions; }

 private:
  static EngineOptions options() {
    EngineOptions o = testing::tiny_options();
    o.threads = 1;
    o.max_num_seqs = 4;
    o.max_model_len = 64;
    o.kv_cache_bytes = 10 * testing::kTinyPageBytes;
    o.host_cache_bytes = 4 * testing::kTinyPageBytes;
    return o;
  }
  static Request request(int i) {
    Request r;
    r.prompt = testing::random_tokens(static_cast<unsigned>(i), 20 + i % 4);
    r.sampling.max_tokens = 33;
    r.sampling.ignore_eos = true;
    return r;
  }

  void submit(int from, int to) {
    for (int i = from; i < to; ++i) engine_.submit(request(i), [this, i](const Output& out) { take(i, out); });
  }
  void take(int i, const Output& out) {
    if (!more_) {
      more_ = true;
      const int left = allocations_left.exchange(-1);  // failures of submit are not tested here
      submit(8, 12);
      allocations_left = left;
    }
    if (out.finish == FinishReason::kNone) return;
    errors_ += out.finish == FinishReason::kError;
    const std::lock_guard lock(mutex_);
    ++ends_[static_cast<size_t>(i)];
    if (--left_ == 0) done_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<int> ends_;
  bool more_ = false;
  int left_ = 12, errors_ = 0;
  Engine engine_;  // declared last, because its callbacks use the other members until it is destroyed
};

TEST(OutOfMemory, LosesNoSequenceThatMovesBetweenLists) {
  Crowd calm;
  constexpr int kNever = 1 << 30;
  const int allocations = calm.run(kNever);
  EXPECT_EQ(calm.errors(), 0);
  EXPECT_GT(calm.preemptions(), 0u);
  EXPECT_GT(allocations, 100);
  int failed = 0;
  // Each of them would take minutes under sanitizers.
  const int step = testing::kAddressSanitizer || testing::kThreadSanitizer ? 4 : 1;
  for (int i = 0; i < allocations; i += step) {
    Crowd crowd;
    crowd.run(i);
    failed += crowd.errors() > 0;
    ASSERT_FALSE(HasFailure()) << "allocation " << i << " of " << allocations;
  }
  EXPECT_GT(failed, 12);
}

}  // namespace
}  // namespace quire
