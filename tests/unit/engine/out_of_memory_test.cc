// Allocations that fail, at every place where a request makes the engine allocate: the request may end with an error,
// the engine goes on, and the next answer is right.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "quire/engine.h"
#include "unit/engine/tiny_model.h"

namespace {

std::atomic<int> allocations_left{-1};  // until one fails; -1: none does

bool fails() {
  return allocations_left.load(std::memory_order_relaxed) >= 0 &&
         allocations_left.fetch_sub(1, std::memory_order_relaxed) == 0;
}

}  // namespace

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // new and delete are these

void* operator new(size_t bytes) {
  void* const memory = fails() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace quire {
namespace {

TEST(OutOfMemory, EndsARequestAtMostWhereverItHappens) {
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
    int ends = 0, errors = 0;
    allocations_left = fail_at;
    try {
      engine.generate(request, [&](const Output& out) {
        if (out.choice == 0 && !out.tokens.empty()) tokens.push_back(out.tokens[0].id);
        ends += out.finish != FinishReason::kNone;
        errors += out.finish == FinishReason::kError;
      });
      allocations_left = -1;
      EXPECT_EQ(ends, 2);
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
    request.prompt[0] = i % 256;  // not always what the prefix cache knows
    const int errors = answer(i).second;
    failed += errors > 0;
    ASSERT_LE(errors, 2);
  }
  EXPECT_GT(failed, 50);
  request.prompt[0] = 0;
  EXPECT_EQ(answer(-1).first, right);
}

}  // namespace
}  // namespace quire
